#include "weights/safetensors.h"

#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "weights/printable.h"
#include "weights/safetensors_header.h"
#include "weights/tensor_size.h"

namespace thalweg::weights {
namespace {

static_assert(std::endian::native == std::endian::little, "safetensors files are read as they lie in memory");

using device::DType;

constexpr std::uint64_t kMaxHeaderBytes = 100'000'000;  // the format's limit
constexpr std::uint64_t kLengthBytes = 8;

constexpr SafetensorsType kTypes[] = {
    {"F32", 32, DType::kF32},
    {"F16", 16, DType::kF16},
    {"BF16", 16, DType::kBF16},
    {"F8_E4M3", 8, DType::kF8E4M3},
    {"F8_E8M0", 8, DType::kF8E8M0},
    {"I8", 8, DType::kI8},
    {"U8", 8, DType::kU8},
    {"I32", 32, DType::kI32},
    {"I64", 64, DType::kI64},
    {"F64", 64, {}},
    {"BOOL", 8, {}},
    {"I16", 16, {}},
    {"U16", 16, {}},
    {"U32", 32, {}},
    {"U64", 64, {}},
    {"C64", 64, {}},
    {"F8_E5M2", 8, {}},
    {"F6_E2M3", 6, {}},
    {"F6_E3M2", 6, {}},
    {"F4", 4, {}},
};

std::unexpected<Error> wrong(const std::string& path, std::string_view problem) {
  return fail(ErrorCode::kInvalidArgument, fmt::format("'{}' is no valid safetensors file: {}", path, problem));
}

std::unexpected<Error> wrong_tensor(const std::string& path, const SafetensorsEntry& entry, std::string_view problem) {
  return wrong(path, fmt::format("tensor '{}' {}", printable(entry.name), problem));
}

Result<std::string_view> header_text(std::span<const std::byte> bytes, const std::string& path) {
  std::uint64_t length = 0;
  if (bytes.size() < kLengthBytes) return wrong(path, fmt::format("it has {} bytes, needs at least 8", bytes.size()));
  std::memcpy(&length, bytes.data(), kLengthBytes);
  if (length > kMaxHeaderBytes || length > bytes.size() - kLengthBytes) {
    return wrong(path, fmt::format("its header has {} bytes, needs at most {} and to fit into the file's {}; the file "
                                   "is damaged or was not downloaded to its end",
                                   length, kMaxHeaderBytes, bytes.size()));
  }
  return std::string_view(reinterpret_cast<const char*>(bytes.data() + kLengthBytes), length);
}

Status check_size(const SafetensorsEntry& entry, const SafetensorsType& type, const std::string& path) {
  const auto [begin, end] = entry.data_offsets;
  const std::optional<std::int64_t> num_elements = checked_num_elements(entry.shape);
  const std::optional<std::uint64_t> num_bits =
      num_elements ? checked_multiply(static_cast<std::uint64_t>(*num_elements), type.bits) : std::nullopt;
  if (!num_bits) return wrong_tensor(path, entry, "has dimensions whose product overflows 64 bits");
  if (begin > end || *num_bits % 8 != 0 || end - begin != *num_bits / 8) {
    return wrong_tensor(path, entry,
                        fmt::format("has data_offsets [{}, {}], needs {} bytes for its shape and {}", begin, end,
                                    *num_bits / 8, type.name));
  }
  return {};
}

// The format's rule: in order of their offsets, each tensor begins where the one before ends, and the last
// ends with the file.
Status check_no_holes(const std::vector<SafetensorsEntry>& entries, std::uint64_t num_bytes, const std::string& path) {
  std::vector<const SafetensorsEntry*> order;
  order.reserve(entries.size());
  for (const SafetensorsEntry& entry : entries) order.push_back(&entry);
  std::ranges::sort(order, {}, [](const SafetensorsEntry* entry) { return entry->data_offsets; });
  std::uint64_t expected = 0;
  for (const SafetensorsEntry* entry : order) {
    const auto [begin, end] = entry->data_offsets;
    if (begin != expected) {
      return wrong_tensor(path, *entry,
                          fmt::format("begins at {} where the tensor before it ends at {}: tensors must "
                                      "neither overlap nor leave holes",
                                      begin, expected));
    }
    if (end > num_bytes) {
      return wrong_tensor(path, *entry,
                          fmt::format("ends at {}, beyond the {} bytes of data; the file is damaged or "
                                      "was not downloaded to its end",
                                      end, num_bytes));
    }
    expected = end;
  }
  if (expected != num_bytes) {
    return wrong(path, fmt::format("its tensors take {} bytes, its data {}", expected, num_bytes));
  }
  return {};
}

Status check_names(const std::vector<SafetensorsEntry>& entries, const std::string& path) {
  std::vector<const SafetensorsEntry*> order;
  order.reserve(entries.size());
  for (const SafetensorsEntry& entry : entries) order.push_back(&entry);
  const auto name = [](const SafetensorsEntry* entry) { return std::string_view(entry->name); };
  std::ranges::sort(order, {}, name);
  const auto twice = std::ranges::adjacent_find(order, {}, name);
  if (twice != order.end()) return wrong_tensor(path, **twice, "appears twice");
  return {};
}

}  // namespace

const SafetensorsType* find_safetensors_type(std::string_view name) {
  const auto* type = std::ranges::find(kTypes, name, &SafetensorsType::name);
  return type == std::end(kTypes) ? nullptr : type;
}

const SafetensorsType* find_safetensors_type(DType dtype) {
  const auto* type = std::ranges::find(kTypes, std::optional(dtype), &SafetensorsType::dtype);
  return type == std::end(kTypes) ? nullptr : type;
}

Result<SafetensorsFile> parse_safetensors(std::span<const std::byte> bytes, const std::string& path) {
  const Result<std::string_view> text = header_text(bytes, path);
  if (!text) return std::unexpected(text.error());
  Result<std::vector<SafetensorsEntry>> entries = parse_safetensors_header(*text);
  if (!entries) return wrong(path, entries.error().message);
  if (const Status status = check_names(*entries, path); !status) return std::unexpected(status.error());
  const std::uint64_t data_begin = kLengthBytes + text->size();
  if (const Status status = check_no_holes(*entries, bytes.size() - data_begin, path); !status) {
    return std::unexpected(status.error());
  }

  SafetensorsFile file;
  for (SafetensorsEntry& entry : *entries) {
    const SafetensorsType* type = find_safetensors_type(entry.type);
    if (type == nullptr) {
      return wrong_tensor(path, entry, fmt::format("has the unknown dtype '{}'", printable(entry.type)));
    }
    if (const Status status = check_size(entry, *type, path); !status) return std::unexpected(status.error());
    const std::uint64_t offset = data_begin + entry.data_offsets[0];
    if (!type->dtype) {
      file.unsupported.push_back({std::move(entry.name), type->name});
      continue;
    }
    file.tensors.push_back({.name = std::move(entry.name),
                            .dtype = *type->dtype,
                            .shape = std::move(entry.shape),
                            .file = 0,
                            .offset = offset,
                            .num_bytes = entry.data_offsets[1] - entry.data_offsets[0]});
  }
  std::ranges::sort(file.tensors, {},
                    [](const TensorInfo& tensor) { return std::pair(tensor.offset, tensor.num_bytes); });
  return file;
}

}  // namespace thalweg::weights
