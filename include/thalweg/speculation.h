// Speculative decoding: where drafts come from and when they hold.
#pragma once

#include <cstdint>
#include <optional>

namespace thalweg {

enum class DraftSource : std::uint8_t {
  kNgram,  // prompt lookup: what followed the last time the newest tokens stood somewhere
  kModel,  // the draft model that comes with the model
};

enum class AcceptanceMethod : std::uint8_t {
  /// The token is drawn as without drafts, and a draft holds if it is that token: tokens never depend on drafts.
  kMatch,
  /// A draft holds with probability min(1, P / Q), P the model's and Q the drafts' distribution: tokens have the
  /// model's
  /// distribution, more drafts of sampled sequences hold, but which tokens a seed gives depends on the drafts.
  kRejection,
};

struct SpeculationOptions {
  DraftSource source = DraftSource::kNgram;
  AcceptanceMethod acceptance = AcceptanceMethod::kMatch;
  /// Of a draft model: drafts are verified as far as the probability that all of them hold, by the model's own estimate
  /// one step before, is at least this. 0: always all of them.
  float min_survival = 0.0F;
  /// For benchmarks: that many drafts hold on average in each step, whatever they are. The output is not the model's.
  std::optional<double> forced_acceptance;
};

}  // namespace thalweg
