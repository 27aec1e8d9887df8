// Engram: rows of a large table, chosen by hashes of the last n tokens, gated into the residual streams
// (DeepSeek-V4.1 specification, section 5).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "device/stream.h"
#include "kernels/mhc/mhc.h"

namespace thalweg::kernels {

/// A position that takes part in no n-gram (an image).
inline constexpr std::int32_t kDeadToken = -1;

/// Numbers of all tables of a model.
struct EngramConfig {
  std::vector<std::int32_t> layer_ids;
  std::int32_t max_ngram_size = 0;         // n-grams of 2 .. max_ngram_size tokens
  std::int32_t num_heads = 0;              // tables per n
  std::int64_t min_vocab_size = 0;         // each table has a prime number of rows, at least this many
  std::int32_t compressed_vocab_size = 0;  // classes of the token map
  std::int32_t pad_class = 0;              // stands where there is no token
};

/// How the n-grams of one layer become rows. Tables are n-major, head-minor: index (n - 2) * num_heads + head.
struct EngramHash {
  std::vector<std::int64_t> multipliers;  // [max_ngram_size], by distance
  std::vector<std::int64_t> primes;       // [num tables], rows of each
  std::vector<std::int64_t> offsets;      // [num tables], first row of each
  std::int32_t num_heads = 0;
  std::int32_t pad_class = 0;

  std::int64_t num_rows() const { return offsets.back() + primes.back(); }
};

/// One per layer of `config.layer_ids`, in that order: primes are not used twice in a model; multipliers come from
/// NumPy's default generator (PCG64 by SeedSequence) seeded with 10007 * layer, as the released model's do.
std::vector<EngramHash> make_engram_hashes(const EngramConfig& config);

/// Rows of the token that ends `classes`: the class of the token and of those before it, oldest first, at most
/// max_ngram_size of them; kDeadToken hides itself and all before it, and fewer tokens count as hidden. rows: [num
/// tables].
void engram_rows(const EngramHash& hash, std::span<const std::int32_t> classes, std::int64_t* rows);

/// A table as it lies in the file, usually mapped: E4M3 codes [num_rows, head_dim], UE8M0 scales [num_rows, head_dim /
/// 32].
struct EngramTable {
  const std::byte* codes = nullptr;
  const std::byte* scales = nullptr;
  std::int64_t num_rows = 0;
  std::int32_t head_dim = 0;
};

/// out [num_lookups, head_dim] = rows of the table, exact in bf16. Precondition: rows are inside the table.
void engram_lookup(device::Stream& stream, const EngramTable& table, std::span<const std::int64_t> rows, float* out);

struct EngramGateParams {
  MhcShape shape;  // norm_epsilon is the one under the root mean squares
  std::int64_t num_tokens = 0;
  const float* y = nullptr;            // [num_tokens, (S + 1) * D]: a key per stream, then the value
  const float* q_weight = nullptr;     // [S, D]
  const float* k_weight = nullptr;     // [S, D]
  std::span<const std::uint8_t> dead;  // [num_tokens], the gate is shut there; empty: nowhere
  bool rounds_bf16 = false;
  float* gate = nullptr;  // [num_tokens, S], for whoever wants to look; or null
  float* x = nullptr;     // [num_tokens, S, D], in place
};

/// x[i] += sigmoid(signed square root of <x[i], key[i]> under both norms) * value.
void engram_gate(device::Stream& stream, const EngramGateParams& params);

}  // namespace thalweg::kernels
