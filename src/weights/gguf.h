// GGUF version 2 and 3, little endian: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "thalweg/error.h"
#include "weights/checkpoint.h"
#include "weights/tensor_table.h"

namespace thalweg::weights {

/// Types of metadata values; the numbers are the format's.
enum class GgufType : std::uint32_t {
  kUint8 = 0,
  kInt8 = 1,
  kUint16 = 2,
  kInt16 = 3,
  kUint32 = 4,
  kInt32 = 5,
  kFloat32 = 6,
  kBool = 7,
  kString = 8,
  kArray = 9,
  kUint64 = 10,
  kInt64 = 11,
  kFloat64 = 12,
};

/// Where a value lies in the file; nothing is copied or converted before someone asks.
struct GgufValue {
  GgufType type = GgufType::kUint8;  // of the elements, for an array
  bool is_array = false;
  std::uint64_t count = 1;
  std::span<const std::byte> bytes;  // exactly the value, or the elements; strings carry their lengths
};

/// Views into the file: the file must outlive this.
class GgufMetadata final : public Metadata {
 public:
  /// `file` names the file in messages. Fails when a key appears twice.
  static Result<GgufMetadata> create(std::vector<std::pair<std::string_view, GgufValue>> entries, std::string file);

  bool has(std::string_view key) const override { return find(key) != nullptr; }
  Result<std::int64_t> get_int(std::string_view key) const override;
  Result<double> get_float(std::string_view key) const override;
  Result<bool> get_bool(std::string_view key) const override;
  Result<std::string> get_string(std::string_view key) const override;
  Result<std::vector<std::int64_t>> get_ints(std::string_view key) const override;
  Result<std::vector<double>> get_floats(std::string_view key) const override;
  Result<std::vector<std::string>> get_strings(std::string_view key) const override;
  std::vector<std::pair<std::string, std::string>> describe() const override;

  /// A vocabulary without a copy per token; the views live as long as the file.
  Result<std::vector<std::string_view>> string_array(std::string_view key) const;
  /// Elements must be declared as 32-bit floats.
  Result<std::vector<float>> float_array(std::string_view key) const;
  /// Elements may be of any integer type; each must fit.
  Result<std::vector<std::int32_t>> int_array(std::string_view key) const;

  const GgufValue* find(std::string_view key) const;

 private:
  Result<const GgufValue*> require(std::string_view key) const;
  /// An array of an accepted element type, each number by `convert`, which gives nothing for one that does not fit.
  template <typename T, typename Convert>
  Result<std::vector<T>> numbers(std::string_view key, bool (*is_accepted)(GgufType), std::string_view needed_type,
                                 std::string_view needed_values, Convert convert) const;
  std::unexpected<Error> wrong_type(std::string_view key, const GgufValue& found, std::string_view needed) const;
  std::unexpected<Error> wrong_value(std::string_view key, std::string_view found, std::string_view needed) const;

  std::vector<std::pair<std::string_view, GgufValue>> entries_;  // in file order
  std::vector<std::uint32_t> by_key_;                            // indices into entries_
  std::string file_;
};

/// A checked header.
struct GgufFile {
  GgufMetadata metadata;
  std::vector<TensorInfo> tensors;  // offsets from the start of the file; names may still appear twice
};

/// `bytes` is the whole file and must outlive the result; `path` appears in messages.
/// Takes time and memory in proportion to the header, whatever the header says.
Result<GgufFile> parse_gguf(std::span<const std::byte> bytes, const std::string& path);

/// Opens the file, or all files of which it is one.
Result<std::unique_ptr<Checkpoint>> open_gguf(const std::string& path);

}  // namespace thalweg::weights
