#include "weights/safetensors_header.h"

#include <fmt/core.h>

#include <boost/json/basic_parser_impl.hpp>
#include <utility>

#include "weights/printable.h"

namespace thalweg::weights {
namespace {

namespace json = boost::json;

constexpr std::size_t kMaxDepth = 4;
constexpr std::size_t kMaxDimensions = 16;

/// Receives the header's events from Boost.JSON. A document tree would hide members that appear twice,
/// and takes several times the memory for headers of 100,000 tensors.
class HeaderEvents {
 public:
  constexpr static std::size_t max_object_size = std::size_t(-1);
  constexpr static std::size_t max_array_size = std::size_t(-1);
  constexpr static std::size_t max_key_size = std::size_t(-1);
  constexpr static std::size_t max_string_size = std::size_t(-1);

  std::vector<SafetensorsEntry> entries;
  std::string problem;  // set when an event was refused

  bool on_document_begin(json::error_code&) { return true; }
  bool on_document_end(json::error_code&) { return true; }

  bool on_object_begin(json::error_code& error) {
    if (place_ == Place::kOutside) return move_to(Place::kTop);
    if (place_ != Place::kTop) return refuse(error, "an object in the wrong place");
    if (key_ == "__metadata__") return move_to(Place::kMetadata);
    entries.push_back({.name = key_});
    seen_ = {};
    return move_to(Place::kTensor);
  }

  bool on_object_end(std::size_t, json::error_code& error) {
    if (place_ == Place::kTop) return move_to(Place::kOutside);
    if (place_ == Place::kTensor && !(seen_.type && seen_.shape && seen_.offsets)) {
      return refuse(error, "needs dtype, shape and data_offsets");
    }
    return move_to(Place::kTop);
  }

  bool on_array_begin(json::error_code& error) {
    if (place_ != Place::kTensor) return refuse(error, "an array in the wrong place");
    if (key_ == "shape" && !std::exchange(seen_.shape, true)) return move_to(Place::kShape);
    if (key_ == "data_offsets" && !std::exchange(seen_.offsets, true)) {
      num_offsets_ = 0;
      return move_to(Place::kOffsets);
    }
    return refuse_member(error);
  }

  bool on_array_end(std::size_t, json::error_code& error) {
    if (place_ == Place::kOffsets && num_offsets_ != 2) return refuse(error, "needs two data_offsets");
    return move_to(Place::kTensor);
  }

  bool on_key_part(json::string_view part, std::size_t, json::error_code&) { return append(part); }
  bool on_key(json::string_view part, std::size_t, json::error_code&) {
    append(part);
    key_ = std::exchange(text_, {});
    return true;
  }

  bool on_string_part(json::string_view part, std::size_t, json::error_code&) { return append(part); }
  bool on_string(json::string_view part, std::size_t, json::error_code& error) {
    append(part);
    std::string text = std::exchange(text_, {});
    if (place_ == Place::kMetadata) return true;
    if (place_ != Place::kTensor) return refuse(error, "a string in the wrong place");
    if (key_ != "dtype" || std::exchange(seen_.type, true)) return refuse_member(error);
    entries.back().type = std::move(text);
    return true;
  }

  bool on_number_part(json::string_view, json::error_code&) { return true; }
  bool on_int64(std::int64_t number, json::string_view, json::error_code& error) {
    if (number < 0) return refuse(error, "a negative number");
    return on_uint64(static_cast<std::uint64_t>(number), {}, error);
  }
  bool on_uint64(std::uint64_t number, json::string_view, json::error_code& error) {
    if (place_ == Place::kOffsets && num_offsets_ < 2) {
      entries.back().data_offsets[num_offsets_++] = number;
      return true;
    }
    if (place_ == Place::kShape && entries.back().shape.size() < kMaxDimensions &&
        std::in_range<std::int64_t>(number)) {
      entries.back().shape.push_back(static_cast<std::int64_t>(number));
      return true;
    }
    return refuse(error, fmt::format("the number {} in the wrong place", number));
  }
  bool on_double(double, json::string_view, json::error_code& error) { return refuse(error, "a fraction"); }
  bool on_bool(bool, json::error_code& error) { return refuse(error, "a bool"); }
  bool on_null(json::error_code& error) { return refuse(error, "a null"); }
  bool on_comment_part(json::string_view, json::error_code&) { return true; }
  bool on_comment(json::string_view, json::error_code&) { return true; }

 private:
  enum class Place { kOutside, kTop, kMetadata, kTensor, kShape, kOffsets };

  struct Seen {
    bool type = false;
    bool shape = false;
    bool offsets = false;
  };

  bool move_to(Place place) {
    place_ = place;
    return true;
  }

  bool append(json::string_view part) {
    text_.append(part.data(), part.size());
    return true;
  }

  bool refuse_member(json::error_code& error) {
    return refuse(error, fmt::format("member '{}' is unknown, of the wrong type or there twice", printable(key_)));
  }

  bool refuse(json::error_code& error, std::string what) {
    problem = place_ == Place::kOutside || place_ == Place::kTop || place_ == Place::kMetadata || entries.empty()
                  ? std::move(what)
                  : fmt::format("tensor '{}': {}", printable(entries.back().name), what);
    error = json::make_error_code(json::error::exception);  // any; `problem` is what is shown
    return false;
  }

  Place place_ = Place::kOutside;
  Seen seen_;
  std::size_t num_offsets_ = 0;
  std::string text_;  // a string that comes in parts
  std::string key_;
};

}  // namespace

Result<std::vector<SafetensorsEntry>> parse_safetensors_header(std::string_view text) {
  json::parse_options options;
  options.max_depth = kMaxDepth;
  json::basic_parser<HeaderEvents> parser(options);
  json::error_code error;
  const std::size_t end = parser.write_some(false, text.data(), text.size(), error);
  if (!error && end != text.size()) error = json::make_error_code(json::error::extra_data);
  if (error) {
    const std::string& problem = parser.handler().problem;
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("its header is wrong near byte {}: {}", end, problem.empty() ? error.message() : problem));
  }
  return std::move(parser.handler().entries);
}

}  // namespace thalweg::weights
