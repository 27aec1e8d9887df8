// Which drafts hold.
//
// By the method that is the rule (AcceptanceMethod::kMatch) the token at each position is drawn from the target model's
// logits exactly as it would be without drafts: the numbers behind the draw depend on the seed and the position alone.
// A draft holds if it is the token that was drawn, so greedy and sampled output are the same with and without
// speculation, whatever the proposer. Rejection sampling is in rejection.h.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "sampling/philox.h"

namespace thalweg::speculative {

/// The token at a draft's place.
struct Verdict {
  std::int32_t token = 0;
  bool holds = false;  // `token` is the draft
};

struct Acceptance {
  std::int32_t num_accepted = 0;  // drafts
  bool failed = false;            // a position could not be drawn; the tokens before it stand
};

/// Calls `judge(i)` for i = 0, 1, ...: the logits that follow the tokens before draft i, answering the verdict on
/// draft i or nothing. It goes on while drafts hold, so on success `num_accepted + 1` tokens were drawn; the last of
/// `num_drafts` + 1 calls is for the token behind all drafts.
template <typename Judge>
Acceptance accept(std::size_t num_drafts, Judge&& judge) {
  Acceptance result;
  for (std::size_t i = 0;; ++i) {
    const std::optional<Verdict> verdict = judge(i);
    if (!verdict) {
      result.failed = true;
      return result;
    }
    if (i == num_drafts || !verdict->holds) return result;
    ++result.num_accepted;
  }
}

/// How many drafts a benchmark lets hold in one step, `mean` on average over steps: its whole part always, one more in
/// as many steps as the fraction says.
inline std::int32_t forced_acceptance(double mean, const sampling::DrawKey& key) {
  const auto whole = static_cast<std::int32_t>(mean);
  return whole + (sampling::uniform(key) < mean - whole ? 1 : 0);
}

}  // namespace thalweg::speculative
