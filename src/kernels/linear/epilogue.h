// What happens to a product y before it is stored.
#pragma once

#include <cstdint>

namespace thalweg::kernels {

enum class Epilogue : std::uint8_t {
  kStore,       // out[t, n] = y
  kAccumulate,  // out[t, n] += y, the residual stream
  kSiluMul,     // rows interleaved gate, up: out[t, n/2] = silu(gate) * up
  kGeluMul,     // the same with tanh-approximated gelu
};

}  // namespace thalweg::kernels
