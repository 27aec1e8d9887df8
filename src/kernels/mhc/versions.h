// The loops over channels, per instruction set. All versions add in the same order and agree bit for bit.
#pragma once

#include <cstdint>

namespace thalweg::kernels::mhc {

inline constexpr int kMaxStreams = 8;
inline constexpr int kMaxDotRows = 4;  // what the registers of AVX2 hold

struct Version {
  /// dots[r] = <rows[r], x>, rows [num_rows, num_cols], at most kMaxDotRows. Column k goes by fma to partial sum k %
  /// 16; the partial sums are added pairwise, 8 apart, then 4, 2, 1.
  void (*dot_rows)(const float* rows, int num_rows, std::int64_t num_cols, const float* x, float* dots);
  /// One token of mhc_collapse: fma over the streams, from 0.
  void (*collapse)(const float* x, const float* pre, int num_streams, std::int64_t hidden_size, bool rounds_bf16,
                   float* out);
  /// One token of mhc_expand: post * sublayer, then fma over the source streams.
  void (*expand)(const float* sublayer, const float* post, const float* comb, int num_streams, std::int64_t hidden_size,
                 bool rounds_bf16, float* x);
};

const Version& reference_version();
const Version& avx2_version();

}  // namespace thalweg::kernels::mhc
