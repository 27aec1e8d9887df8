#include "device/dtype.h"

#include <array>

namespace thalweg::device {
namespace {

struct Row {
  std::string_view name;
  BlockLayout layout;
};

// In the order of the enumeration.
constexpr std::array<Row, 18> kTable{{
    {"F32", {1, 4}},
    {"F16", {1, 2}},
    {"BF16", {1, 2}},
    {"F8_E4M3", {1, 1}},
    {"F8_E8M0", {1, 1}},
    {"F4_E2M1", {2, 1}},
    {"I8", {1, 1}},
    {"I32", {1, 4}},
    {"I64", {1, 8}},
    {"U8", {1, 1}},
    {"Q4_0", {32, 18}},
    {"Q4_1", {32, 20}},
    {"Q5_0", {32, 22}},
    {"Q5_1", {32, 24}},
    {"Q8_0", {32, 34}},
    {"Q4_K", {256, 144}},
    {"Q5_K", {256, 176}},
    {"Q6_K", {256, 210}},
}};

}  // namespace

BlockLayout block_layout(DType dtype) { return kTable[static_cast<std::size_t>(dtype)].layout; }
std::string_view dtype_name(DType dtype) { return kTable[static_cast<std::size_t>(dtype)].name; }

}  // namespace thalweg::device
