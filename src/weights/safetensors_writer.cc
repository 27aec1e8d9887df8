#include "weights/safetensors_writer.h"

#include <fmt/core.h>

#include <boost/json.hpp>
#include <cerrno>
#include <cstring>
#include <optional>

#include "weights/printable.h"
#include "weights/safetensors.h"
#include "weights/tensor_size.h"

namespace thalweg::weights {
namespace {

namespace json = boost::json;

constexpr std::size_t kHeaderAlignment = 8;

std::unexpected<Error> cannot(const char* what, const std::string& path) {
  return fail(errno == ENOSPC || errno == EDQUOT ? ErrorCode::kResourceExhausted : ErrorCode::kFailedPrecondition,
              fmt::format("cannot {} '{}': {}", what, path, std::strerror(errno)));
}

std::unexpected<Error> wrong(const SafetensorsWriter::Tensor& tensor, std::string_view problem) {
  return fail(ErrorCode::kInvalidArgument, fmt::format("tensor '{}' {}", printable(tensor.name), problem));
}

// Adds the tensor's description and moves `offset` behind its data.
Status describe(const SafetensorsWriter::Tensor& tensor, json::object& header, std::uint64_t& offset) {
  const SafetensorsType* type = find_safetensors_type(tensor.dtype);
  if (type == nullptr) {
    return wrong(tensor, fmt::format("has type {}, which safetensors files cannot hold", dtype_name(tensor.dtype)));
  }
  const std::uint64_t element_bytes = type->bits / 8;
  const std::optional<std::int64_t> count = checked_num_elements(tensor.shape);
  const std::optional<std::uint64_t> num_bytes =
      count ? checked_multiply(static_cast<std::uint64_t>(*count), element_bytes) : std::nullopt;
  std::uint64_t end = 0;
  if (!num_bytes || __builtin_add_overflow(offset, *num_bytes, &end)) {
    return wrong(tensor, "has a size that overflows 64 bits");
  }
  if (offset % element_bytes != 0) return wrong(tensor, "would lie unaligned; put wider types first");
  if (header.contains(tensor.name)) return wrong(tensor, "appears twice");
  header.emplace(tensor.name, json::object{{"dtype", type->name},
                                           {"shape", json::array(tensor.shape.begin(), tensor.shape.end())},
                                           {"data_offsets", json::array{offset, end}}});
  offset = end;
  return {};
}

std::string with_length(std::string text) {
  text.resize((text.size() + kHeaderAlignment - 1) / kHeaderAlignment * kHeaderAlignment, ' ');
  const std::uint64_t length = text.size();
  return std::string(reinterpret_cast<const char*>(&length), sizeof(length)) + text;
}

}  // namespace

Result<SafetensorsWriter> SafetensorsWriter::create(const std::string& path, const std::vector<Tensor>& tensors,
                                                    const std::vector<std::pair<std::string, std::string>>& metadata) {
  json::object header;
  json::object& free_text = header["__metadata__"].emplace_object();
  for (const auto& [key, value] : metadata) free_text.emplace(key, value);
  std::uint64_t num_bytes = 0;
  for (const Tensor& tensor : tensors) {
    if (const Status status = describe(tensor, header, num_bytes); !status) return std::unexpected(status.error());
  }
  if (metadata.empty()) header.erase("__metadata__");

  std::unique_ptr<std::FILE, CloseFile> file(std::fopen((path + ".partial").c_str(), "wbe"));
  if (file == nullptr) return cannot("create", path + ".partial");
  SafetensorsWriter writer(path, std::move(file));
  const std::string text = with_length(json::serialize(header));
  if (std::fwrite(text.data(), 1, text.size(), writer.file_.get()) != text.size()) return cannot("write", path);
  writer.bytes_missing_ = num_bytes;
  return writer;
}

SafetensorsWriter& SafetensorsWriter::operator=(SafetensorsWriter&& other) noexcept {
  discard();
  path_ = std::move(other.path_);
  file_ = std::move(other.file_);
  bytes_missing_ = other.bytes_missing_;
  return *this;
}

SafetensorsWriter::~SafetensorsWriter() { discard(); }

void SafetensorsWriter::discard() {
  if (file_ == nullptr) return;
  file_.reset();
  std::remove(partial_path().c_str());
}

Status SafetensorsWriter::append(std::span<const std::byte> bytes) {
  if (bytes.size() > bytes_missing_) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("'{}' needs {} more bytes, got {}", path_, bytes_missing_, bytes.size()));
  }
  if (std::fwrite(bytes.data(), 1, bytes.size(), file_.get()) != bytes.size()) return cannot("write", partial_path());
  bytes_missing_ -= bytes.size();
  return {};
}

Status SafetensorsWriter::finish() {
  if (bytes_missing_ != 0) {
    return fail(ErrorCode::kFailedPrecondition, fmt::format("'{}' still needs {} bytes", path_, bytes_missing_));
  }
  if (std::fclose(file_.release()) != 0) {
    std::remove(partial_path().c_str());
    return cannot("write", partial_path());
  }
  if (std::rename(partial_path().c_str(), path_.c_str()) != 0) {
    std::remove(partial_path().c_str());
    return cannot("rename to", path_);
  }
  return {};
}

}  // namespace thalweg::weights
