#include "sampling/philox.h"

namespace thalweg::sampling {
namespace {

constexpr std::uint32_t low(std::uint64_t x) { return static_cast<std::uint32_t>(x); }
constexpr std::uint32_t high(std::uint64_t x) { return static_cast<std::uint32_t>(x >> 32); }

}  // namespace

std::array<std::uint32_t, 4> philox4x32_10(std::array<std::uint32_t, 4> counter, std::array<std::uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t a = std::uint64_t{0xD2511F53} * counter[0];
    const std::uint64_t b = std::uint64_t{0xCD9E8D57} * counter[2];
    counter = {high(b) ^ counter[1] ^ key[0], low(b), high(a) ^ counter[3] ^ key[1], low(a)};
    key[0] += 0x9E3779B9;
    key[1] += 0xBB67AE85;
  }
  return counter;
}

double uniform(std::uint64_t seed, std::uint64_t position, DrawPurpose purpose) {
  const auto words =
      philox4x32_10({low(position), high(position), static_cast<std::uint32_t>(purpose), 0}, {low(seed), high(seed)});
  const std::uint64_t bits = (std::uint64_t{words[0]} << 32) | words[1];
  return static_cast<double>(bits >> 11) * 0x1.0p-53;
}

}  // namespace thalweg::sampling
