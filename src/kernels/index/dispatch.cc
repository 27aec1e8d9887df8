// A query's entries are scored in pieces, each of which keeps its own best; the best of those are the list. So a
// single query occupies all threads, and memory does not grow with the scores. Queries go in waves, which bounds the
// scratch.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "base/check.h"
#include "device/thread_pool.h"
#include "kernels/attention/sparse_attention/paged_entries.h"
#include "kernels/index/best.h"
#include "kernels/index/index.h"
#include "kernels/index/versions.h"

namespace thalweg::kernels {
namespace index {
namespace {

// Entries of a task, at 32 heads of 128 a hundred microseconds of one thread: fewer would leave more for the choice
// among the pieces. Whole tiles.
constexpr std::int32_t kPieceEntries = 2048;
constexpr std::int64_t kPiecesPerThread = 32;  // of a wave; a query without pieces counts as one
static_assert(kPieceEntries % kTileEntries == 0);

constexpr std::int32_t ceil_divide(std::int32_t a, std::int32_t b) { return a / b + (a % b != 0 ? 1 : 0); }

/// Entries that one query may choose from, numbered from 0 in rising order.
struct Query {
  std::int32_t row = 0;
  std::int32_t token = 0;
  std::int32_t num_eligible = 0;
  const std::int32_t* blocks = nullptr;  // kRestrict: the numbers run through these blocks
  std::int64_t first_piece = 0;          // of the wave
};

std::int32_t entry_of(const IndexParams& params, const Query& query, std::int32_t number) {
  if (query.blocks == nullptr) return number;
  const std::int32_t block_size = params.candidates.block_size;
  return query.blocks[number / block_size] * block_size + number % block_size;
}

std::int32_t num_blocks(const IndexParams& params, const Query& query) {
  return ceil_divide(query.num_eligible, params.candidates.block_size);
}

Query make_query(const IndexParams& params, std::int32_t row, std::int32_t token) {
  const std::int32_t num_visible = params.num_visible[token];
  CHECK_GE(num_visible, 0);
  Query query{.row = row, .token = token, .num_eligible = num_visible};
  if (params.use != CandidateUse::kRestrict) return query;
  const auto [block_size, max_blocks, blocks] = params.candidates;
  query.blocks = blocks + std::int64_t{token} * max_blocks;
  query.num_eligible = 0;
  for (std::int32_t i = 0; i < max_blocks && query.blocks[i] >= 0; ++i) {
    query.num_eligible += std::clamp(num_visible - query.blocks[i] * block_size, 0, block_size);
  }
  return query;
}

bool needs_scores(const IndexParams& params, const Query& query) {
  return params.scores != nullptr || query.num_eligible > params.top_k ||
         (params.use == CandidateUse::kChoose && num_blocks(params, query) > params.candidates.max_blocks);
}

/// Entries of a piece. A block of candidates lies in one piece.
std::int32_t piece_size(const IndexParams& params) {
  if (params.use != CandidateUse::kChoose) return kPieceEntries;
  CHECK_LE(params.candidates.block_size, kPieceEntries);
  return kPieceEntries - kPieceEntries % params.candidates.block_size;
}

std::int64_t num_pieces(const IndexParams& params, const Query& query) {
  return needs_scores(params, query) ? ceil_divide(query.num_eligible, piece_size(params)) : 0;
}

bool is_coded(const device::Stream& stream, const IndexParams& params) {
  return stream.cpu_level >= device::CpuLevel::kAvx2 && params.keys.format == QuantFormat::kF4Block32 &&
         params.head_dim <= kMaxCodedDim;
}

/// The scratch of one wave, for `max_queries` queries and `max_pieces` pieces.
struct Scratch {
  std::int64_t best_per_piece = 0;
  std::int64_t blocks_per_piece = 0;
  std::int64_t groups_per_query = 0;
  Rank* best_ranks = nullptr;            // [pieces, best_per_piece], 0 where there are fewer
  std::int32_t* best_entries = nullptr;  // the same
  Rank* block_ranks = nullptr;           // [pieces, blocks_per_piece]
  std::uint32_t* words = nullptr;        // [queries, groups_per_query, kWordsPerGroup]
  float* scales = nullptr;               // [queries, groups_per_query]
};

Scratch make_scratch(device::Stream& stream, const IndexParams& params, std::int64_t max_queries,
                     std::int64_t max_pieces) {
  Scratch scratch{.best_per_piece = std::min(params.top_k, piece_size(params))};
  if (params.use == CandidateUse::kChoose) {
    scratch.blocks_per_piece = piece_size(params) / params.candidates.block_size;
  }
  if (is_coded(stream, params)) {
    scratch.groups_per_query = std::int64_t{params.num_heads} * (params.head_dim / kGroup);
  }
  const std::int64_t num_best = max_pieces * scratch.best_per_piece;
  const std::int64_t num_blocks = max_pieces * scratch.blocks_per_piece;
  const std::int64_t num_groups = max_queries * scratch.groups_per_query;
  std::byte* memory = stream.threads->scratch(device::ScratchSlot::kAttention,
                                              4 * (2 * num_best + num_blocks + num_groups * (kWordsPerGroup + 1)));
  const auto take = [&]<typename T>(T*& pointer, std::int64_t count) {
    static_assert(sizeof(T) == 4);
    pointer = reinterpret_cast<T*>(memory);
    memory += 4 * count;
  };
  take(scratch.best_ranks, num_best);
  take(scratch.best_entries, num_best);
  take(scratch.block_ranks, num_blocks);
  take(scratch.words, num_groups * kWordsPerGroup);
  take(scratch.scales, num_groups);
  return scratch;
}

/// Values that have an FP4 form keep them when they are quantised again.
void encode_query(const IndexParams& params, const Query& query, std::uint32_t* words, float* scales) {
  constexpr std::uint8_t kDoubled[8] = {0, 1, 2, 3, 4, 6, 8, 12};
  const auto offset_code = [&](std::uint32_t code) -> std::uint32_t {
    return code < 8 ? 12 + kDoubled[code] : 12 - kDoubled[code - 8];
  };
  const std::int32_t num_groups = params.head_dim / kGroup;
  std::vector<std::byte> stored(quant_row_bytes(QuantFormat::kF4Block32, params.head_dim));
  const float* q = params.q + std::int64_t{query.token} * params.num_heads * params.head_dim;
  for (std::int32_t head = 0; head < params.num_heads; ++head, q += params.head_dim) {
    quantize_row(QuantFormat::kF4Block32, q, params.head_dim, stored.data());
    for (std::int32_t i = 0; i < params.head_dim / 8; ++i) {
      std::uint32_t even = 0;
      std::uint32_t odd = 0;
      for (std::int32_t byte = 0; byte < 4; ++byte) {
        const auto pair = std::to_integer<std::uint32_t>(stored[4 * i + byte]);
        even |= offset_code(pair & 15) << (8 * byte);
        odd |= offset_code(pair >> 4) << (8 * byte);
      }
      *words++ = even;
      *words++ = odd;
    }
    for (std::int32_t g = 0; g < num_groups; ++g) {
      const int exponent = std::to_integer<int>(stored[params.head_dim / 2 + g]) - 127;
      *scales++ = std::ldexp(0.25F, exponent);
    }
  }
}

/// The highest ranks of blocks of a piece.
void rank_blocks(std::span<const Rank> ranks, std::int32_t block_size, Rank* blocks) {
  for (std::size_t first = 0; first < ranks.size(); first += block_size) {
    *blocks++ = std::ranges::max(ranks.subspan(first, std::min<std::size_t>(block_size, ranks.size() - first)));
  }
}

void score_piece(device::Stream& stream, const IndexParams& params, const Query& query, std::int64_t query_of_wave,
                 std::int64_t piece, const Scratch& scratch) {
  const std::int32_t size = piece_size(params);
  const std::int32_t first = static_cast<std::int32_t>(piece - query.first_piece) * size;
  const std::int32_t count = std::min(size, query.num_eligible - first);
  const std::int32_t* block_table = params.block_tables.data() + std::int64_t{query.row} * params.max_blocks_per_row;
  const std::byte* keys[kTileEntries];
  float scores[kTileEntries];
  Rank ranks[kPieceEntries];
  const std::int64_t first_group = query_of_wave * scratch.groups_per_query;
  const ScoreArgs args{.q = params.q + std::int64_t{query.token} * params.num_heads * params.head_dim,
                       .codes = {scratch.words + first_group * kWordsPerGroup, scratch.scales + first_group},
                       .weights = params.weights + std::int64_t{query.token} * params.num_heads,
                       .num_heads = params.num_heads,
                       .head_dim = params.head_dim,
                       .format = params.keys.format,
                       .keys = keys,
                       .rounds_bf16 = params.rounds_bf16,
                       .scores = scores};
  Score* const score = is_coded(stream, params) ? score_avx2 : score_reference;
  for (std::int32_t tile = 0; tile < count; tile += kTileEntries) {
    const std::int32_t tile_count = std::min(kTileEntries, count - tile);
    for (std::int32_t i = 0; i < kTileEntries; ++i) {
      const std::int32_t entry = entry_of(params, query, first + tile + std::min(i, tile_count - 1));
      keys[i] = entry_at(params.keys, block_table, params.max_blocks_per_row, entry);
    }
    score(args);
    for (std::int32_t i = 0; i < tile_count; ++i) {
      ranks[tile + i] = rank_of(scores[i]);
      if (params.scores == nullptr) continue;
      params.scores[query.token * params.scores_stride + entry_of(params, query, first + tile + i)] = scores[i];
    }
  }

  const std::span<const Rank> scored(ranks, count);
  if (scratch.blocks_per_piece > 0) {
    rank_blocks(scored, params.candidates.block_size, scratch.block_ranks + piece * scratch.blocks_per_piece);
  }
  Rank* const best_ranks = scratch.best_ranks + piece * scratch.best_per_piece;
  std::int32_t* const best = scratch.best_entries + piece * scratch.best_per_piece;
  const std::int32_t num_best = find_best(scored, static_cast<std::int32_t>(scratch.best_per_piece), best);
  for (std::int32_t i = 0; i < num_best; ++i) {
    best_ranks[i] = ranks[best[i]];
    best[i] = entry_of(params, query, first + best[i]);
  }
  std::fill(best_ranks + num_best, best_ranks + scratch.best_per_piece, Rank{0});
}

void write_list(const IndexParams& params, const Query& query, const Scratch& scratch) {
  std::int32_t* const list = params.lists + std::int64_t{query.token} * params.top_k;
  std::int32_t count = std::min(params.top_k, query.num_eligible);
  if (query.num_eligible <= params.top_k) {
    for (std::int32_t i = 0; i < count; ++i) list[i] = entry_of(params, query, i);
  } else {
    const std::int64_t first = query.first_piece * scratch.best_per_piece;
    const auto num_ranks = static_cast<std::size_t>(num_pieces(params, query) * scratch.best_per_piece);
    count = find_best({scratch.best_ranks + first, num_ranks}, params.top_k, list);
    for (std::int32_t i = 0; i < count; ++i) list[i] = scratch.best_entries[first + list[i]];
  }
  std::fill(list + count, list + params.top_k, -1);
}

void write_candidates(const IndexParams& params, const Query& query, const Scratch& scratch) {
  const std::int32_t max_blocks = params.candidates.max_blocks;
  std::int32_t* const blocks = params.candidates.blocks + std::int64_t{query.token} * max_blocks;
  std::int32_t count = num_blocks(params, query);
  if (count <= max_blocks) {
    for (std::int32_t i = 0; i < count; ++i) blocks[i] = i;
  } else {
    Rank* const ranks = scratch.block_ranks + query.first_piece * scratch.blocks_per_piece;
    ranks[count - 1] = kFirstRank;  // the newest
    count = find_best({ranks, static_cast<std::size_t>(count)}, max_blocks, blocks);
  }
  std::fill(blocks + count, blocks + max_blocks, -1);
}

void run_wave(device::Stream& stream, const IndexParams& params, std::span<const Query> queries,
              const Scratch& scratch) {
  const auto num_queries = static_cast<std::int64_t>(queries.size());
  if (scratch.groups_per_query > 0) {
    stream.threads->parallel_for(num_queries, [&](std::int64_t i, int) {
      if (!needs_scores(params, queries[i])) return;
      encode_query(params, queries[i], scratch.words + i * scratch.groups_per_query * kWordsPerGroup,
                   scratch.scales + i * scratch.groups_per_query);
    });
  }
  const std::int64_t total_pieces = queries.back().first_piece + num_pieces(params, queries.back());
  stream.threads->parallel_for(total_pieces, [&](std::int64_t piece, int) {
    const auto next = std::ranges::upper_bound(queries, piece, {}, &Query::first_piece);
    const std::int64_t i = next - queries.begin() - 1;
    score_piece(stream, params, queries[i], i, piece, scratch);
  });
  stream.threads->parallel_for(num_queries, [&](std::int64_t i, int) {
    write_list(params, queries[i], scratch);
    if (params.use == CandidateUse::kChoose) write_candidates(params, queries[i], scratch);
  });
}

void check_shape(const IndexParams& params) {
  CHECK_GT(params.num_heads, 0);
  CHECK_GT(params.head_dim, 0);
  CHECK_GT(params.top_k, 0);
  CHECK_EQ(static_cast<std::size_t>(params.cu_seqlens.back()), params.num_visible.size());
  CHECK_GT(params.keys.entries_per_block, 0);
  CHECK_GE(params.keys.entry_bytes, quant_row_bytes(params.keys.format, params.head_dim));
  CHECK_GE(params.block_tables.size(), (params.cu_seqlens.size() - 1) * params.max_blocks_per_row);
  if (params.use == CandidateUse::kNone) return;
  CHECK_GT(params.candidates.block_size, 0);
  CHECK_GT(params.candidates.max_blocks, 0);
}

std::vector<Query> make_queries(const IndexParams& params) {
  std::vector<Query> queries;
  queries.reserve(params.num_visible.size());
  for (std::int32_t row = 0; row + 1 < static_cast<std::int32_t>(params.cu_seqlens.size()); ++row) {
    for (std::int32_t token = params.cu_seqlens[row]; token < params.cu_seqlens[row + 1]; ++token) {
      queries.push_back(make_query(params, row, token));
    }
  }
  return queries;
}

}  // namespace
}  // namespace index

void index_select(device::Stream& stream, const IndexParams& params) {
  if (params.num_visible.empty()) return;
  index::check_shape(params);
  if (params.scores != nullptr) {
    const auto num_scores = static_cast<std::int64_t>(params.num_visible.size()) * params.scores_stride;
    std::fill_n(params.scores, num_scores, -std::numeric_limits<float>::infinity());
  }

  std::vector<index::Query> queries = index::make_queries(params);
  const std::int64_t most_load = index::kPiecesPerThread * stream.threads->num_threads();
  for (std::size_t first = 0; first < queries.size();) {
    std::size_t end = first;
    std::int64_t pieces = 0;
    for (std::int64_t load = 0; end < queries.size() && load < most_load; ++end) {
      const std::int64_t added = index::num_pieces(params, queries[end]);
      queries[end].first_piece = pieces;
      pieces += added;
      load += std::max<std::int64_t>(1, added);
    }
    const auto wave_size = static_cast<std::int64_t>(end - first);
    index::run_wave(stream, params, std::span(queries).subspan(first, wave_size),
                    index::make_scratch(stream, params, wave_size, pieces));
    first = end;
  }
}

}  // namespace thalweg::kernels
