// What a caller asks of an engine. Plain values; an engine checks them once, in scheduler/admission.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "thalweg/error.h"

namespace thalweg {

enum class RequestId : std::uint64_t {};

struct LogitBias {
  std::int32_t token_id = 0;
  float bias = 0.0F;
};

/// How the next token is drawn. Order of operations: allowed ids and bad words, logit bias,
/// repetition, frequency and presence penalties, temperature, min_p, top_k, top_p, draw.
struct SamplingParams {
  float temperature = 1.0F;  // 0: greedy, ties go to the lowest id
  std::int32_t top_k = 0;    // 0 or -1: off
  float top_p = 1.0F;        // (0, 1]
  float min_p = 0.0F;        // [0, 1]
  float repetition_penalty = 1.0F;
  float presence_penalty = 0.0F;
  float frequency_penalty = 0.0F;
  std::vector<LogitBias> logit_bias;
  std::vector<std::int32_t> allowed_token_ids;       // empty: all
  std::vector<std::vector<std::int32_t>> bad_words;  // token sequences that must not be completed
  std::optional<std::uint64_t> seed;                 // absent: the engine draws one
  std::int32_t num_logprobs = -1;                    // -1: none; k: the sampled token and the top k
  std::int32_t min_tokens = 0;                       // end tokens are masked before that many
  std::vector<std::int32_t> stop_token_ids;          // also ends under ignore_eos
  bool ignore_eos = false;                           // the model's own end tokens do not end
};

/// Limits of one request that hold for every model; ranges of numbers are a table in base/request_rules.cc.
inline constexpr std::int32_t kMaxLogprobs = 20;
inline constexpr std::int32_t kMaxSequencesPerRequest = 128;
inline constexpr std::size_t kMaxLogitBiases = 1024;
inline constexpr std::size_t kMaxBadWords = 256;  // token sequences; one string may need several
inline constexpr std::size_t kMaxBadWordTokens = 64;
inline constexpr std::size_t kMaxStopTokenIds = 128;
inline constexpr std::size_t kMaxCacheSaltBytes = 128;

/// Checks every field against its range and every id against [0, vocab_size). The error's `param` is
/// the field's name in HTTP. All doors (HTTP, command line, batch files, library) come through here.
Status validate_sampling(const SamplingParams& sampling, std::int32_t vocab_size);

/// One request: one prompt, `num_sequences` generated continuations.
struct GenerateRequest {
  std::vector<std::int32_t> prompt_ids;
  SamplingParams sampling;
  std::int32_t max_tokens = 16;  // per sequence; 0 only computes the prompt (prompt logprobs)
  std::int32_t num_sequences = 1;
  std::int32_t num_prompt_logprobs = -1;  // -1: none
  std::int64_t priority = 0;              // lower runs first
  std::optional<double> timeout_s;        // from submission
  std::string cache_salt;                 // part of the prefix cache key
};

/// Checks what depends on the vocabulary alone, `validate_sampling` included. Lengths against a
/// model's and a pool's limits are the engine's question; `Engine::submit` asks both.
Status validate_request(const GenerateRequest& request, std::int32_t vocab_size);

}  // namespace thalweg
