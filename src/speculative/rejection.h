// Rejection sampling of drafts (Leviathan, Kalman and Matias, "Fast inference from transformers via speculative
// decoding", 2023): a draft x drawn from Q holds with probability min(1, P(x) / Q(x)); the token that takes a rejected
// draft's place is drawn from what P has more than Q. Tokens then have distribution P, whatever Q is.
//
// The draft, the test and the replacement must be drawn by independent numbers. Those of a draft are keyed by the
// distance to the token it was drawn behind, too, so that drafts of one position in two steps are independent:
// confidences of the first may decide whether the second is verified.
#pragma once

#include <cstdint>
#include <span>

#include "sampling/philox.h"
#include "sampling/row_scratch.h"
#include "speculative/accept.h"

namespace thalweg::speculative {

struct RejectionKeys {
  sampling::DrawKey acceptance;
  sampling::DrawKey residual;
};

/// `scratch` holds P as SequenceSampler::Choose gets it, with its total; the weights are overwritten. `q` [vocab_size]
/// sums to one; null: all of it is the draft's.
Verdict reject_or_accept(std::int32_t draft, const float* q, sampling::RowScratch& scratch, double total,
                         const RejectionKeys& keys);

}  // namespace thalweg::speculative
