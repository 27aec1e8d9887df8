// The generator behind every draw: Philox4x32-10 (Salmon et al., 2011). It has no state: a number is a function of its
// key and counter, so a draw does not depend on what was drawn before, for whom, or how often.
#pragma once

#include <array>
#include <cstdint>

namespace thalweg::sampling {

std::array<std::uint32_t, 4> philox4x32_10(std::array<std::uint32_t, 4> counter, std::array<std::uint32_t, 2> key);

/// What a number is drawn for. One sequence may need several at the same position.
enum class DrawPurpose : std::uint32_t { kToken = 0 };

/// Uniform in [0, 1) with 53 random bits. `position` counts the output tokens before the drawn one.
double uniform(std::uint64_t seed, std::uint64_t position, DrawPurpose purpose);

}  // namespace thalweg::sampling
