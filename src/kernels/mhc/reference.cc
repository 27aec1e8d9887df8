#include "kernels/mhc/channels.h"
#include "kernels/mhc/versions.h"

namespace thalweg::kernels::mhc {
namespace {

void dot_rows(const float* rows, int num_rows, std::int64_t num_cols, const float* x, float* dots) {
  for (int row = 0; row < num_rows; ++row) {
    float partial_sums[kNumPartialSums] = {};
    dot_columns(rows + row * num_cols, x, 0, num_cols, partial_sums);
    dots[row] = add_partial_sums(partial_sums);
  }
}

void collapse(const float* x, const float* pre, int num_streams, std::int64_t hidden_size, bool rounds_bf16,
              float* out) {
  collapse_channels(x, pre, num_streams, hidden_size, rounds_bf16, out, 0);
}

void expand(const float* sublayer, const float* post, const float* comb, int num_streams, std::int64_t hidden_size,
            bool rounds_bf16, float* x) {
  expand_channels(sublayer, post, comb, num_streams, hidden_size, rounds_bf16, x, 0);
}

}  // namespace

const Version& reference_version() {
  static constexpr Version kVersion{dot_rows, collapse, expand};
  return kVersion;
}

}  // namespace thalweg::kernels::mhc
