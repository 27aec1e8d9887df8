// Which drafts hold.
//
// The token at each position is drawn from the target model's logits exactly as it would be without drafts: the number
// behind the draw depends on the seed and the position alone. A draft holds if it is the token that was drawn, so
// greedy and sampled output are the same with and without speculation, whatever the proposer.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

namespace thalweg::speculative {

struct Acceptance {
  std::int32_t num_accepted = 0;  // drafts
  bool failed = false;            // a position could not be drawn; the tokens before it stand
};

/// Calls `draw(i)` for i = 0, 1, ...: the logits that follow the tokens before draft i, answering the token or nothing.
/// It goes on while drafts hold, so on success `num_accepted + 1` tokens were drawn.
template <typename DrawPosition>
Acceptance accept(std::span<const std::int32_t> drafts, DrawPosition&& draw) {
  Acceptance result;
  for (std::size_t i = 0;; ++i) {
    const std::optional<std::int32_t> token = draw(static_cast<std::int32_t>(i));
    if (!token) {
      result.failed = true;
      return result;
    }
    if (i == drafts.size() || *token != drafts[i]) return result;
    ++result.num_accepted;
  }
}

}  // namespace thalweg::speculative
