// For the one-line functions of kernels: a call between them would cost more than their work.
#pragma once

#define THALWEG_INLINE inline __attribute__((always_inline))
