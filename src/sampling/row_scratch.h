// Memory that one thread reuses from row to row.
#pragma once

#include <cstdint>
#include <vector>

namespace thalweg::sampling {

struct Candidate {
  float logit = 0.0F;
  std::int32_t id = 0;
};

/// The order of everything that is sorted or cut here: the larger logit first, ties by the lower id.
inline bool better(const Candidate& a, const Candidate& b) {
  return a.logit > b.logit || (a.logit == b.logit && a.id < b.id);
}

struct RowScratch {
  std::vector<float> maxima;   // per block of the row
  std::vector<float> sums;     // per block of the row
  std::vector<float> weights;  // per value of the row
  std::vector<float> order;    // a copy of maxima to select in
  std::vector<Candidate> candidates;
  std::vector<double> candidate_weights;
  std::vector<Candidate> originals;  // logits as they were before they were edited, oldest first
};

}  // namespace thalweg::sampling
