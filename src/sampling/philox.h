// The generator behind every draw: Philox4x32-10 (Salmon et al., 2011). It has no state: a number is a function of its
// key and counter, so a draw does not depend on what was drawn before, for whom, or how often.
#pragma once

#include <array>
#include <cstdint>

namespace thalweg::sampling {

std::array<std::uint32_t, 4> philox4x32_10(std::array<std::uint32_t, 4> counter, std::array<std::uint32_t, 2> key);

/// What numbers are drawn for: at one position of one sequence each purpose has numbers of its own.
enum class DrawPurpose : std::uint32_t {
  kToken,             // the token that stands there
  kAcceptance,        // whether a draft holds there (rejection sampling)
  kResidual,          // the token that takes a rejected draft's place
  kForcedAcceptance,  // how many drafts a benchmark lets hold
  kDraft,             // + i: the draft i places behind the newest token (rejection sampling)
};

/// Names the numbers of one draw.
struct DrawKey {
  std::uint64_t seed = 0;
  std::uint64_t position = 0;  // output tokens before the drawn one
  DrawPurpose purpose = DrawPurpose::kToken;
  std::uint32_t offset = 0;  // of the last purpose
};

/// The numbers 4 * `group` and the three after it.
std::array<std::uint32_t, 4> random_words(const DrawKey& key, std::uint32_t group);

/// Uniform in [0, 1) with 53 random bits, made of the first two numbers.
double uniform(const DrawKey& key);

}  // namespace thalweg::sampling
