// Reading the JSON of a request: size, depth and type rules in one place. Only request parsing includes this.
#pragma once

#include <boost/json/fwd.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "server/api_error.h"

namespace thalweg::server {

/// `body` as a JSON object. A byte order mark is skipped; of equal keys the last one wins.
ApiResult<boost::json::object> parse_json_object(std::string_view body, std::int32_t max_depth);

/// Reads the fields of one object. `null` equals absent. The first mistake is kept and later reads change
/// nothing, so that callers read all fields in a row and look at error() once.
class FieldReader {
 public:
  /// `path` is written before field names in errors ("messages[0]."); the object outlives the reader.
  explicit FieldReader(const boost::json::object& object, std::string path = {});

  /// Null when absent.
  const boost::json::value* find(std::string_view name);

  // Absent fields leave `out` as it is. Ranges come from the table in field_rules.cc.
  bool boolean(std::string_view name, bool& out);
  bool number(std::string_view name, float& out);
  bool integer(std::string_view name, std::int32_t& out);
  bool integer(std::string_view name, std::int64_t& out);
  bool string(std::string_view name, std::string& out);
  const boost::json::array* array(std::string_view name);
  const boost::json::object* object(std::string_view name);

  /// Known and without effect here.
  void ignore(std::string_view name) { known_.push_back(name); }

  void refuse(std::string_view name, std::string message);
  void fail(ApiError error);
  bool failed() const { return error_.has_value(); }
  const std::optional<ApiError>& error() const { return error_; }

  /// Names in the object that nobody asked for, the first few.
  std::vector<std::string> unknown_fields() const;

 private:
  const boost::json::object& object_;
  std::string path_;
  std::vector<std::string_view> known_;
  std::optional<ApiError> error_;
};

/// Exact: 3 and 3.0 are integers, 3.5, 1e400 and 2^63 are not.
std::optional<std::int64_t> exact_integer(const boost::json::value& value);

/// What a value is, for messages: "a string", "-1".
std::string describe_value(const boost::json::value& value);

}  // namespace thalweg::server
