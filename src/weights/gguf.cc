#include "weights/gguf.h"

#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <optional>
#include <utility>

#include "base/check.h"
#include "weights/gguf_reader.h"
#include "weights/printable.h"
#include "weights/tensor_size.h"

namespace thalweg::weights {
namespace {

static_assert(std::endian::native == std::endian::little, "GGUF files are read as they lie in memory");

using device::DType;

constexpr std::uint64_t kMaxKeyBytes = 65535;  // the format's limit
constexpr std::uint64_t kMaxNameBytes = 1024;  // the format says 64; some writers exceed that
constexpr std::uint32_t kMaxDimensions = 4;
constexpr std::int64_t kDefaultAlignment = 32;
constexpr std::int64_t kMaxAlignment = 1 << 20;
// The least that a metadata pair and a tensor description take: bounds of their counts.
constexpr std::uint64_t kMinPairBytes = 8 + 1 + 4 + 1;
constexpr std::uint64_t kMinTensorBytes = 8 + 1 + 4 + 8 + 4 + 8;

struct TensorType {
  std::uint32_t number;
  std::string_view name;
  std::optional<DType> dtype;  // empty: known to GGML, not supported here
};

constexpr TensorType kTensorTypes[] = {
    {0, "F32", DType::kF32},
    {1, "F16", DType::kF16},
    {2, "Q4_0", DType::kQ4_0},
    {3, "Q4_1", DType::kQ4_1},
    {6, "Q5_0", DType::kQ5_0},
    {7, "Q5_1", DType::kQ5_1},
    {8, "Q8_0", DType::kQ8_0},
    {9, "Q8_1", {}},
    {10, "Q2_K", {}},
    {11, "Q3_K", {}},
    {12, "Q4_K", DType::kQ4_K},
    {13, "Q5_K", DType::kQ5_K},
    {14, "Q6_K", DType::kQ6_K},
    {15, "Q8_K", {}},
    {16, "IQ2_XXS", {}},
    {17, "IQ2_XS", {}},
    {18, "IQ3_XXS", {}},
    {19, "IQ1_S", {}},
    {20, "IQ4_NL", {}},
    {21, "IQ3_S", {}},
    {22, "IQ2_S", {}},
    {23, "IQ4_XS", {}},
    {24, "I8", DType::kI8},
    {25, "I16", {}},
    {26, "I32", DType::kI32},
    {27, "I64", DType::kI64},
    {28, "F64", {}},
    {29, "IQ1_M", {}},
    {30, "BF16", DType::kBF16},
    {34, "TQ1_0", {}},
    {35, "TQ2_0", {}},
    {39, "MXFP4", {}},
    {40, "NVFP4", {}},
    {41, "Q1_0", {}},
    {42, "Q2_0", {}},
};

// Bytes of one element; 0 for strings and arrays, which have no fixed size.
std::uint64_t fixed_size(GgufType type) {
  switch (type) {
    case GgufType::kUint8:
    case GgufType::kInt8:
    case GgufType::kBool:
      return 1;
    case GgufType::kUint16:
    case GgufType::kInt16:
      return 2;
    case GgufType::kUint32:
    case GgufType::kInt32:
    case GgufType::kFloat32:
      return 4;
    case GgufType::kUint64:
    case GgufType::kInt64:
    case GgufType::kFloat64:
      return 8;
    case GgufType::kString:
    case GgufType::kArray:
      return 0;
  }
  return 0;
}

/// Walks one header from front to back.
class Parser {
 public:
  Parser(std::span<const std::byte> bytes, const std::string& path)
      : reader_(bytes), size_(bytes.size()), path_(path) {}

  Result<GgufFile> parse();

 private:
  Status parse_preamble();
  Result<std::pair<std::string_view, GgufValue>> parse_pair();
  Status parse_value(std::string_view key, GgufValue& value);
  Status parse_array(std::string_view key, GgufValue& value);
  Status skip_strings(std::string_view key, std::uint64_t count);
  Result<std::int64_t> alignment(const GgufMetadata& metadata) const;
  Result<TensorInfo> parse_tensor();
  Status parse_shape(TensorInfo& tensor);
  Status parse_type(TensorInfo& tensor);
  Status place(TensorInfo& tensor, std::uint64_t tensors_begin, std::uint64_t alignment) const;
  Status check_no_overlap(const std::vector<TensorInfo>& tensors) const;

  std::unexpected<Error> wrong(std::string problem) const {
    return fail(ErrorCode::kInvalidArgument, fmt::format("'{}' is no valid GGUF file: {}", path_, problem));
  }
  std::unexpected<Error> ends_in(std::string_view what) const {
    return wrong(fmt::format("it has {} bytes and ends inside {}", size_, what));
  }
  std::unexpected<Error> wrong_tensor(const TensorInfo& tensor, std::string_view problem) const {
    return wrong(fmt::format("tensor '{}' {}", printable(tensor.name), problem));
  }

  GgufReader reader_;
  const std::uint64_t size_;
  const std::string& path_;
  std::uint64_t num_tensors_ = 0;
  std::uint64_t num_pairs_ = 0;
};

Status Parser::parse_preamble() {
  std::uint32_t magic = 0;
  std::uint32_t version = 0;
  if (!reader_.read(magic)) return ends_in("the magic number");
  if (magic != 0x46554747) {
    return wrong(fmt::format("it starts with the bytes {:08x}, needs 47475546 (\"GGUF\")", __builtin_bswap32(magic)));
  }
  if (!reader_.read(version)) return ends_in("the version");
  if (version != 0 && (version & 0xffff) == 0) {
    return fail(ErrorCode::kUnimplemented,
                fmt::format("'{}' is a big-endian GGUF file (version {}); only little-endian files are read: "
                            "convert it again without --bigendian",
                            path_, __builtin_bswap32(version)));
  }
  if (version != 2 && version != 3) {
    return fail(ErrorCode::kUnimplemented,
                fmt::format("'{}' is GGUF version {}, needs 2 or 3; convert it with a current tool", path_, version));
  }
  if (!reader_.read(num_tensors_) || !reader_.read(num_pairs_)) return ends_in("the counts");
  if (num_pairs_ > reader_.remaining() / kMinPairBytes) {
    return wrong(fmt::format("it says {} metadata pairs, more than its {} bytes can hold", num_pairs_, size_));
  }
  if (num_tensors_ > reader_.remaining() / kMinTensorBytes) {
    return wrong(fmt::format("it says {} tensors, more than its {} bytes can hold", num_tensors_, size_));
  }
  return {};
}

Result<std::pair<std::string_view, GgufValue>> Parser::parse_pair() {
  std::pair<std::string_view, GgufValue> pair;
  auto& [key, value] = pair;
  if (!reader_.read_string(key)) return ends_in(fmt::format("a metadata key at byte {}", reader_.position()));
  if (key.empty() || key.size() > kMaxKeyBytes) {
    return wrong(fmt::format("a metadata key of {} bytes, needs 1 to {}", key.size(), kMaxKeyBytes));
  }
  if (const Status status = parse_value(key, value); !status) return std::unexpected(status.error());
  return pair;
}

Status Parser::parse_value(std::string_view key, GgufValue& value) {
  if (!reader_.read(value.type)) return ends_in(fmt::format("the type of metadata key '{}'", printable(key)));
  if (value.type > GgufType::kFloat64) {
    return wrong(fmt::format("metadata key '{}' has type {}, needs 0 to 12", printable(key),
                             static_cast<std::uint32_t>(value.type)));
  }
  if (value.type == GgufType::kArray) return parse_array(key, value);
  const std::uint64_t begin = reader_.position();
  if (value.type == GgufType::kString) {
    if (const Status status = skip_strings(key, 1); !status) return status;
  } else if (!reader_.skip(fixed_size(value.type))) {
    return ends_in(fmt::format("metadata key '{}'", printable(key)));
  }
  value.bytes = reader_.since(begin);
  return {};
}

Status Parser::parse_array(std::string_view key, GgufValue& value) {
  value.is_array = true;
  if (!reader_.read(value.type) || !reader_.read(value.count)) {
    return ends_in(fmt::format("the array of metadata key '{}'", printable(key)));
  }
  if (value.type == GgufType::kArray || value.type > GgufType::kFloat64) {
    return wrong(fmt::format("the array of metadata key '{}' has elements of type {}, needs 0 to 12 and no array",
                             printable(key), static_cast<std::uint32_t>(value.type)));
  }
  const std::uint64_t begin = reader_.position();
  const std::uint64_t least = value.type == GgufType::kString ? 8 : fixed_size(value.type);
  if (value.count > reader_.remaining() / least) {
    return wrong(fmt::format("the array of metadata key '{}' has {} elements, more than the remaining {} bytes hold",
                             printable(key), value.count, reader_.remaining()));
  }
  if (value.type == GgufType::kString) {
    if (const Status status = skip_strings(key, value.count); !status) return status;
  } else {
    CHECK(reader_.skip(value.count * least));
  }
  value.bytes = reader_.since(begin);
  return {};
}

Status Parser::skip_strings(std::string_view key, std::uint64_t count) {
  for (std::uint64_t i = 0; i < count; ++i) {
    std::string_view text;
    if (!reader_.read_string(text)) {
      return ends_in(fmt::format("string {} of {} of metadata key '{}'", i + 1, count, printable(key)));
    }
  }
  return {};
}

Result<std::int64_t> Parser::alignment(const GgufMetadata& metadata) const {
  if (!metadata.has("general.alignment")) return kDefaultAlignment;
  const Result<std::int64_t> alignment = metadata.get_int("general.alignment");
  if (!alignment) return alignment;
  if (*alignment < 8 || *alignment > kMaxAlignment || !std::has_single_bit(static_cast<std::uint64_t>(*alignment))) {
    return wrong(fmt::format("general.alignment is {}, needs a power of two from 8 to {}", *alignment, kMaxAlignment));
  }
  return alignment;
}

Result<TensorInfo> Parser::parse_tensor() {
  TensorInfo tensor;
  std::string_view name;
  if (!reader_.read_string(name)) return ends_in(fmt::format("a tensor name at byte {}", reader_.position()));
  if (name.empty() || name.size() > kMaxNameBytes) {
    return wrong(fmt::format("a tensor name of {} bytes, needs 1 to {}", name.size(), kMaxNameBytes));
  }
  tensor.name = name;
  if (const Status status = parse_shape(tensor); !status) return std::unexpected(status.error());
  if (const Status status = parse_type(tensor); !status) return std::unexpected(status.error());
  if (!reader_.read(tensor.offset)) return ends_in(fmt::format("the offset of tensor '{}'", printable(name)));
  return tensor;
}

// The file holds the innermost dimension first; TensorInfo the outermost.
Status Parser::parse_shape(TensorInfo& tensor) {
  std::uint32_t num_dimensions = 0;
  if (!reader_.read(num_dimensions)) return ends_in(fmt::format("tensor '{}'", printable(tensor.name)));
  if (num_dimensions < 1 || num_dimensions > kMaxDimensions) {
    return wrong_tensor(tensor, fmt::format("has {} dimensions, needs 1 to {}", num_dimensions, kMaxDimensions));
  }
  tensor.shape.resize(num_dimensions);
  for (std::uint32_t i = num_dimensions; i-- > 0;) {
    std::uint64_t dimension = 0;
    if (!reader_.read(dimension)) return ends_in(fmt::format("the shape of tensor '{}'", printable(tensor.name)));
    if (dimension == 0 || !std::in_range<std::int64_t>(dimension)) {
      return wrong_tensor(tensor, fmt::format("has a dimension of {}, needs 1 to 2^63 - 1", dimension));
    }
    tensor.shape[i] = static_cast<std::int64_t>(dimension);
  }
  return {};
}

Status Parser::parse_type(TensorInfo& tensor) {
  std::uint32_t number = 0;
  if (!reader_.read(number)) return ends_in(fmt::format("the type of tensor '{}'", printable(tensor.name)));
  const auto* type = std::ranges::find(kTensorTypes, number, &TensorType::number);
  if (type == std::end(kTensorTypes)) return wrong_tensor(tensor, fmt::format("has the unknown type {}", number));
  if (!type->dtype) {
    return fail(ErrorCode::kUnimplemented,
                fmt::format("tensor '{}' of '{}' has type {}; supported are F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, "
                            "Q5_1, Q4_K, Q5_K, Q6_K, I8, I32 and I64: choose another quantisation of this model",
                            printable(tensor.name), path_, type->name));
  }
  tensor.dtype = *type->dtype;
  const device::BlockLayout layout = device::block_layout(tensor.dtype);
  if (tensor.shape.back() % layout.num_elements != 0) {
    return wrong_tensor(tensor, fmt::format("has rows of {} elements, needs a multiple of {} for {}",
                                            tensor.shape.back(), layout.num_elements, type->name));
  }
  const std::optional<std::int64_t> num_elements = checked_num_elements(tensor.shape);
  const std::optional<std::uint64_t> num_bytes =
      num_elements ? checked_multiply(static_cast<std::uint64_t>(*num_elements / layout.num_elements),
                                      static_cast<std::uint64_t>(layout.num_bytes))
                   : std::nullopt;
  if (!num_bytes) return wrong_tensor(tensor, "has dimensions whose product overflows 64 bits");
  tensor.num_bytes = *num_bytes;
  return {};
}

Status Parser::place(TensorInfo& tensor, std::uint64_t tensors_begin, std::uint64_t alignment) const {
  if (tensor.offset % alignment != 0) {
    return wrong_tensor(tensor, fmt::format("has offset {}, needs a multiple of {}", tensor.offset, alignment));
  }
  if (tensors_begin > size_ || !lies_inside(tensor.offset, tensor.num_bytes, size_ - tensors_begin)) {
    return wrong_tensor(tensor, fmt::format("has {} bytes at {} + {}, beyond the file's {} bytes; the file is damaged "
                                            "or was not downloaded to its end",
                                            tensor.num_bytes, tensors_begin, tensor.offset, size_));
  }
  tensor.offset += tensors_begin;
  return {};
}

Status Parser::check_no_overlap(const std::vector<TensorInfo>& tensors) const {
  std::vector<const TensorInfo*> order;
  order.reserve(tensors.size());
  for (const TensorInfo& tensor : tensors) order.push_back(&tensor);
  std::ranges::sort(order, {}, [](const TensorInfo* tensor) { return tensor->offset; });
  for (std::size_t i = 1; i < order.size(); ++i) {
    if (order[i - 1]->offset + order[i - 1]->num_bytes > order[i]->offset) {
      return wrong_tensor(*order[i - 1], fmt::format("overlaps tensor '{}'", printable(order[i]->name)));
    }
  }
  return {};
}

Result<GgufFile> Parser::parse() {
  if (const Status status = parse_preamble(); !status) return std::unexpected(status.error());

  std::vector<std::pair<std::string_view, GgufValue>> pairs;
  for (std::uint64_t i = 0; i < num_pairs_; ++i) {
    Result<std::pair<std::string_view, GgufValue>> pair = parse_pair();
    if (!pair) return std::unexpected(std::move(pair.error()));
    pairs.push_back(*pair);
  }
  Result<GgufMetadata> metadata = GgufMetadata::create(std::move(pairs), path_);
  if (!metadata) return std::unexpected(std::move(metadata.error()));
  const Result<std::int64_t> alignment = this->alignment(*metadata);
  if (!alignment) return std::unexpected(alignment.error());

  std::vector<TensorInfo> tensors;
  for (std::uint64_t i = 0; i < num_tensors_; ++i) {
    Result<TensorInfo> tensor = parse_tensor();
    if (!tensor) return std::unexpected(std::move(tensor.error()));
    tensors.push_back(std::move(*tensor));
  }
  const std::optional<std::uint64_t> begin =
      checked_align_up(reader_.position(), static_cast<std::uint64_t>(*alignment));
  CHECK(begin.has_value());  // a position in a file is far from 2^64
  for (TensorInfo& tensor : tensors) {
    const Status status = place(tensor, *begin, static_cast<std::uint64_t>(*alignment));
    if (!status) return std::unexpected(status.error());
  }
  if (const Status status = check_no_overlap(tensors); !status) return std::unexpected(status.error());
  return GgufFile{std::move(*metadata), std::move(tensors)};
}

}  // namespace

Result<GgufFile> parse_gguf(std::span<const std::byte> bytes, const std::string& path) {
  return Parser(bytes, path).parse();
}

}  // namespace thalweg::weights
