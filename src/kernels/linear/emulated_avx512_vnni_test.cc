// avx512_vnni.cc on machines without AVX-512: SIMDe makes its intrinsics of AVX2's. Called by test.cc.
#include "kernels/linear/emulation.h"

#if defined(THALWEG_EMULATES_AVX512)
#include "kernels/linear/emulated_avx512.h"

#define avx512_vnni_version emulated_avx512_vnni_version
#include "kernels/linear/avx512_vnni.cc"  // NOLINT(bugprone-suspicious-include)
#endif
