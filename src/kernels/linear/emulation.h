// Whether tests emulate AVX-512. Sanitizers would take minutes to compile the emulation.
#pragma once

#if defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define THALWEG_EMULATES_AVX512
#endif
