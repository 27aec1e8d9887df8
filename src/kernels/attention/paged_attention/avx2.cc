#include "kernels/attention/paged_attention/simd_avx2.h"
#include "kernels/attention/paged_attention/tiles.h"
#include "kernels/attention/paged_attention/versions.h"

namespace thalweg::kernels::attention {

void write_kv_avx2(const WriteKvArgs& args) { write_kv_any<Avx2>(args); }
void attend_avx2(const AttendArgs& args) { attend_any<Avx2>(args); }
void combine_avx2(const CombineArgs& args) { combine_any<Avx2>(args); }

}  // namespace thalweg::kernels::attention
