// NumPy's default generator: the hash multipliers of released models are its draws.
#pragma once

#include <cstdint>

namespace thalweg::kernels::engram {

/// What numpy.random.default_rng(seed) draws: PCG64 (XSL RR 128/64) whose state SeedSequence makes of the seed.
class NumpyRandom {
 public:
  explicit NumpyRandom(std::uint64_t seed);

  std::uint64_t next();

  /// integers(0, bound), by Lemire's method as NumPy does it for ranges beyond 32 bits. Precondition: bound > 2^32.
  std::uint64_t next_below(std::uint64_t bound);

 private:
  using Word128 = unsigned __int128;
  void step();

  Word128 state_ = 0;
  Word128 increment_ = 0;
};

}  // namespace thalweg::kernels::engram
