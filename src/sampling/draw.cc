#include "sampling/draw.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "sampling/race.h"
#include "sampling/select.h"

namespace thalweg::sampling {
namespace {

constexpr float kLowest = std::numeric_limits<float>::lowest();
constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr std::int32_t kMaxSorted = 4096;  // candidates of a guess; beyond it, halving an interval is faster
constexpr std::int32_t kMaxBracket = 256;  // values left to sort when halving ends

float scale_of(const DrawParams& params) { return 1.0F / std::max(params.temperature, kLowestTemperature); }
float min_weight_of(const DrawParams& params) { return std::min(params.min_p, 1.0F); }  // the best one stays

/// Floats as integers of the same order, and back.
std::int32_t order_key(float x) {
  const auto bits = std::bit_cast<std::int32_t>(x);
  return bits < 0 ? bits ^ 0x7FFFFFFF : bits;
}
float from_order_key(std::int32_t key) { return std::bit_cast<float>(key < 0 ? key ^ 0x7FFFFFFF : key); }

/// Fills in the candidates' weights and drops the candidates that min_p excludes; returns the sum.
double weigh_candidates(const DrawParams& params, float max, RowScratch& scratch) {
  const float scale = scale_of(params);
  auto& candidates = scratch.candidates;
  scratch.candidate_weights.clear();
  std::size_t num_kept = 0;
  double sum = 0.0;
  for (const Candidate& candidate : candidates) {
    const float weight = row_exp((candidate.logit - max) * scale);
    if (weight == 0.0F || weight < min_weight_of(params)) continue;
    candidates[num_kept++] = candidate;
    scratch.candidate_weights.push_back(weight);
    sum += weight;
  }
  candidates.resize(num_kept);
  return sum;
}

/// Shortens sorted candidates to the first whose running sum reaches `target`.
void cut_candidates(double target, RowScratch& scratch) {
  double sum = 0.0;
  std::size_t num_kept = 0;
  while (num_kept < scratch.candidates.size()) {
    sum += scratch.candidate_weights[num_kept++];
    if (sum >= target) break;
  }
  scratch.candidates.resize(num_kept);
  scratch.candidate_weights.resize(num_kept);
}

template <typename Visit>
void for_each_candidate(const RowScratch& scratch, Visit&& visit) {
  for (std::size_t i = 0; i < scratch.candidates.size(); ++i) {
    visit(static_cast<std::size_t>(scratch.candidates[i].id), scratch.candidate_weights[i]);
  }
}

double sum_of(std::span<const float> sums) {
  double total = 0.0;
  for (const float sum : sums) total += sum;
  return total;
}

/// Values whose weights sum to less than `target` from `high` on, and to at least it from `low` on.
struct Bracket {
  float low;
  float high;
  RowMass from_low;
  RowMass from_high;
};

/// Halves the bracket until few values lie in it or it cannot be halved: first by value, which is quick
/// for ordinary logits, then by representation, which ends for all.
Bracket bracket_mass(const RowLoops& loops, std::span<const float> row, float max, double target,
                     const RowScratch& scratch) {
  const auto n = static_cast<std::int32_t>(row.size());
  const auto mass_from = [&](float value) { return loops.mass_from(row.data(), scratch.weights.data(), n, value); };
  Bracket bracket{kLowest, std::nextafter(max, kInfinity), mass_from(kLowest), {}};
  constexpr int kHalvingsByValue = 16;
  float step = 1.0F;
  for (int i = 0; bracket.from_low.count - bracket.from_high.count > kMaxBracket; ++i) {
    const std::int32_t low_key = order_key(bracket.low);
    const std::int32_t high_key = order_key(bracket.high);
    float middle = 0.0F;
    if (i < kHalvingsByValue && bracket.low == kLowest) {
      middle = max - step;
      step *= 4.0F;
    } else if (i < kHalvingsByValue) {
      middle = bracket.low + (bracket.high - bracket.low) * 0.5F;
    } else {
      middle = from_order_key(static_cast<std::int32_t>((std::int64_t{low_key} + high_key) >> 1));
    }
    if (order_key(middle) <= low_key || order_key(middle) >= high_key) {
      if (high_key - std::int64_t{low_key} <= 1) break;
      middle = from_order_key(static_cast<std::int32_t>((std::int64_t{low_key} + high_key) >> 1));
    }
    const RowMass mass = mass_from(middle);
    if (mass.mass >= target) {
      bracket.low = middle;
      bracket.from_low = mass;
    } else {
      bracket.high = middle;
      bracket.from_high = mass;
    }
  }
  return bracket;
}

/// Zeroes the weights outside the smallest best set whose mass reaches `target`.
void cut_row(const RowLoops& loops, std::span<const float> row, float max, double target, RowScratch& scratch) {
  const Bracket bracket = bracket_mass(loops, row, max, target, scratch);
  collect(row, scratch.maxima, bracket.low, bracket.high, scratch.candidates);
  const bool all_equal = order_key(bracket.high) - std::int64_t{order_key(bracket.low)} <= 1;
  if (!all_equal) std::sort(scratch.candidates.begin(), scratch.candidates.end(), better);
  double sum = bracket.from_high.mass;
  Candidate last{bracket.high, -1};
  for (const Candidate& candidate : scratch.candidates) {
    last = candidate;
    sum += scratch.weights[static_cast<std::size_t>(candidate.id)];
    if (sum >= target) break;
  }
  loops.cut_weights(row.data(), static_cast<std::int32_t>(row.size()), last.logit, last.id, scratch.weights.data(),
                    scratch.sums.data());
}

}  // namespace

Kept filter_candidates(const DrawParams& params, RowScratch& scratch) {
  auto& candidates = scratch.candidates;
  if (params.top_k > 0) {
    keep_top(candidates, params.top_k);
  } else if (params.top_p < 1.0F) {
    std::sort(candidates.begin(), candidates.end(), better);
  }
  float max = candidates.front().logit;
  for (const Candidate& candidate : candidates) max = std::max(max, candidate.logit);
  const double sum = weigh_candidates(params, max, scratch);
  if (params.top_p < 1.0F) cut_candidates(params.top_p * sum, scratch);
  return Kept::kCandidates;
}

Kept filter_row(const RowLoops& loops, std::span<const float> row, const DrawParams& params, RowScratch& scratch) {
  const auto n = static_cast<std::int32_t>(row.size());
  if (params.top_k > 0 && params.top_k < n) {
    select_top(row, scratch.maxima, params.top_k, scratch.order, scratch.candidates);
    return filter_candidates(params, scratch);
  }
  const float max = *std::max_element(scratch.maxima.begin(), scratch.maxima.end());
  scratch.weights.resize(row.size());
  scratch.sums.resize(scratch.maxima.size());
  loops.weigh(row.data(), n, max, scale_of(params), min_weight_of(params), scratch.weights.data(), scratch.sums.data());
  if (params.top_p >= 1.0F) return Kept::kRow;

  const double target = params.top_p * sum_of(scratch.sums);
  // A trained model's mass sits in few values, so a small guess mostly holds all that can be kept.
  constexpr std::int32_t kGuess = 64;
  const float threshold = threshold_of(scratch.maxima, kGuess, scratch.order);
  const RowMass guess = loops.mass_from(row.data(), scratch.weights.data(), n, threshold);
  if (guess.mass >= target && guess.count <= kMaxSorted) {
    collect(row, scratch.maxima, threshold, kInfinity, scratch.candidates);
    std::sort(scratch.candidates.begin(), scratch.candidates.end(), better);
    weigh_candidates(params, max, scratch);
    cut_candidates(target, scratch);
    return Kept::kCandidates;
  }
  cut_row(loops, row, max, target, scratch);
  return Kept::kRow;
}

std::int32_t draw_kept(Kept kept, const DrawKey& key, RowScratch& scratch) {
  if (kept == Kept::kRow) return race_row(key, scratch.weights, scratch.sums);
  double total = 0.0;
  for (const double weight : scratch.candidate_weights) total += weight;
  RowRace race(key, total);
  scratch.sums.assign(scratch.maxima.size(), 0.0F);  // of light candidates
  for_each_candidate(scratch, [&](std::size_t id, double weight) {
    if (race.is_heavy(weight)) {
      race.enter_id(id, weight);
    } else {
      scratch.sums[id / kRowBlock] += static_cast<float>(weight);
    }
  });
  for (std::size_t b = 0; b < scratch.sums.size(); ++b) race.enter_block(b, scratch.sums[b]);
  if (const auto block = race.winning_block()) {
    for_each_candidate(scratch, [&](std::size_t id, double weight) {
      if (id / kRowBlock == *block) race.enter_light_id(id, weight);
    });
  }
  return race.winner();
}

double spread_kept(Kept kept, std::int32_t n, RowScratch& scratch) {
  if (kept == Kept::kCandidates) {
    scratch.sums.assign(scratch.maxima.size(), 0.0F);
    scratch.weights.assign(static_cast<std::size_t>(n), 0.0F);
    for_each_candidate(scratch, [&](std::size_t id, double weight) {
      scratch.weights[id] = static_cast<float>(weight);
      scratch.sums[id / kRowBlock] += scratch.weights[id];
    });
  }
  return sum_of(scratch.sums);
}

}  // namespace thalweg::sampling
