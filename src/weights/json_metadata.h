// Metadata out of a JSON file, by dotted path.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "thalweg/error.h"
#include "weights/checkpoint.h"

namespace boost::json {
class object;
class value;
}  // namespace boost::json

namespace thalweg::weights {

/// config.json or generation_config.json. "a.b" is member b of member a, unless a member is called "a.b".
class JsonMetadata final : public Metadata {
 public:
  /// `text` must be a JSON object; `file` names it in messages.
  static Result<JsonMetadata> parse(std::string_view text, std::string file);

  /// No keys at all.
  explicit JsonMetadata(std::string file);
  JsonMetadata(JsonMetadata&&) noexcept;
  JsonMetadata& operator=(JsonMetadata&&) noexcept;
  ~JsonMetadata() override;

  bool has(std::string_view key) const override { return find(key) != nullptr; }
  Result<std::int64_t> get_int(std::string_view key) const override;
  Result<double> get_float(std::string_view key) const override;
  Result<bool> get_bool(std::string_view key) const override;
  Result<std::string> get_string(std::string_view key) const override;
  Result<std::vector<std::int64_t>> get_ints(std::string_view key) const override;
  Result<std::vector<double>> get_floats(std::string_view key) const override;
  Result<std::vector<std::string>> get_strings(std::string_view key) const override;
  std::vector<std::pair<std::string, std::string>> describe() const override;

 private:
  const boost::json::value* find(std::string_view key) const;  // null for absent and for null
  Result<const boost::json::value*> require(std::string_view key) const;
  template <typename T, typename Convert>
  Result<T> scalar(std::string_view key, std::string_view needed, Convert convert) const;
  template <typename T, typename Convert>
  Result<std::vector<T>> array(std::string_view key, std::string_view needed, Convert convert) const;

  std::unique_ptr<const boost::json::object> root_;  // behind a pointer to keep Boost.JSON out of this header
  std::string file_;
};

/// Reads the member "weight_map" of model.safetensors.index.json: tensor name to file name.
Result<std::map<std::string, std::string>> parse_weight_map(std::string_view text, const std::string& file);

}  // namespace thalweg::weights
