// avx512.cc on machines without AVX-512: SIMDe makes its intrinsics of AVX2's. Called by test.cc.
#include "kernels/linear/emulation.h"

#if defined(THALWEG_EMULATES_AVX512)
#include "kernels/linear/emulated_avx512.h"

#define avx512_version emulated_avx512_version
#include "kernels/linear/avx512.cc"  // NOLINT(bugprone-suspicious-include)
#endif
