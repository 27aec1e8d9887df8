#include "worker/logits_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <numeric>

namespace thalweg::worker {
namespace {

constexpr std::int32_t kDefaultChunk = 512;

Status check_hit(const kv_cache::CacheSpec& cache, std::int32_t num_hit_tokens) {
  const std::int32_t granule = std::lcm(std::max(cache.hit_granularity, 1), cache.block_size);
  if (num_hit_tokens >= 0 && num_hit_tokens % granule == 0) return {};
  return fail(ErrorCode::kInvalidArgument,
              fmt::format("prefix_hit is {}; hits of this model are multiples of {} tokens", num_hit_tokens, granule),
              "prefix_hit");
}

}  // namespace

Result<LogitsRun> LogitsRun::create(models::Model& model, device::Stream stream, std::int32_t max_tokens,
                                    const LogitsOptions& options) {
  if (options.chunk < 0) {
    return fail(ErrorCode::kInvalidArgument, fmt::format("chunk is {}; it must not be negative", options.chunk),
                "chunk");
  }
  if (max_tokens <= 0 || max_tokens > model.info().max_position) {
    return fail(ErrorCode::kInvalidArgument, fmt::format("the longest text has {} tokens; this model takes 1 to {}",
                                                         max_tokens, model.info().max_position));
  }
  if (Status status = check_hit(model.info().cache, options.num_hit_tokens); !status) {
    return std::unexpected(status.error());
  }
  const std::int64_t row_bytes = std::int64_t{model.info().vocab_size} * static_cast<std::int64_t>(sizeof(float));
  const std::int64_t most = std::clamp<std::int64_t>(kMaxLogitBytes / row_bytes, 1, max_tokens);
  const std::int64_t chunk = std::min<std::int64_t>(options.chunk > 0 ? options.chunk : kDefaultChunk, most);
  LogitsOptions used = options;
  used.chunk = static_cast<std::int32_t>(chunk);
  return LogitsRun(model, stream, max_tokens, used);
}

LogitsRun::LogitsRun(models::Model& model, device::Stream stream, std::int32_t max_tokens, const LogitsOptions& options)
    : model_(&model),
      stream_(stream),
      max_tokens_(max_tokens),
      options_(options),
      inputs_(model.info().cache.block_size),
      block_table_(
          static_cast<std::size_t>((max_tokens + model.info().cache.block_size - 1) / model.info().cache.block_size)),
      blocks_(block_table_.size() * static_cast<std::size_t>(model.info().cache.bytes_per_block)),
      state_(static_cast<std::size_t>(model.info().cache.state_bytes_per_slot)),
      logits_(static_cast<std::size_t>(options.chunk) * static_cast<std::size_t>(model.info().vocab_size) *
              sizeof(float)) {
  std::iota(block_table_.begin(), block_table_.end(), 0);
  model_->reserve(options_.chunk);
}

Status LogitsRun::check(std::span<const std::int32_t> ids) const {
  if (ids.size() > static_cast<std::size_t>(max_tokens_)) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("the text has {} tokens; this run was made for at most {}", ids.size(), max_tokens_),
                "ids");
  }
  const std::int32_t vocab_size = model_->info().vocab_size;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] >= 0 && ids[i] < vocab_size) continue;
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("ids[{}] is {}; valid ids are 0 to {}", i, ids[i], vocab_size - 1), "ids");
  }
  if (options_.num_hit_tokens > 0 && ids.size() <= static_cast<std::size_t>(options_.num_hit_tokens)) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("the text has {} tokens; a prefix hit of {} leaves none to compute", ids.size(),
                            options_.num_hit_tokens),
                "prefix_hit");
  }
  return {};
}

Status LogitsRun::run(std::span<const std::int32_t> ids, const LogitsSink& sink) {
  if (Status status = check(ids); !status) return status;
  const auto num_tokens = static_cast<std::int32_t>(ids.size());
  const std::int32_t decode_from = options_.decode_from < 0 ? num_tokens : std::min(options_.decode_from, num_tokens);
  const std::int32_t hit = options_.num_hit_tokens;
  if (hit == 0) return run_pass(ids, {.num_prompt_tokens = decode_from, .end = num_tokens}, sink);
  if (Status status = run_pass(ids, {.num_prompt_tokens = std::min(decode_from, hit), .end = hit}, sink); !status) {
    return status;
  }
  // A hit leaves at least one known token to compute.
  return run_pass(
      ids, {.num_prompt_tokens = std::max(decode_from, hit + 1), .end = num_tokens, .num_cached_tokens = hit}, sink);
}

Status LogitsRun::run_pass(std::span<const std::int32_t> ids, const Pass& pass, const LogitsSink& sink) {
  const models::ModelInfo& info = model_->info();
  const models::CacheMemory cache{blocks_.data(), static_cast<std::int64_t>(block_table_.size()), state_.data(), 1};
  if (state_.size() > 0) std::memset(state_.data(), 0, state_.size());
  const bool tail_only = options_.prompt_tail_only && info.prefill_tail_tokens > 0;
  const std::int32_t tail_begin = tail_only ? std::max(pass.num_prompt_tokens - info.prefill_tail_tokens, 0) : 0;
  for (std::int32_t first = std::max(pass.num_cached_tokens - info.cache.replay_tokens, 0); first < pass.end;) {
    const bool decodes = first >= pass.num_prompt_tokens;
    const std::int32_t end = decodes ? first + 1 : std::min(first + options_.chunk, pass.num_prompt_tokens);
    const std::int32_t full_from = decodes ? 0 : tail_begin;
    const std::int32_t shown_from = std::clamp(pass.num_cached_tokens, first, end);
    const std::int32_t known_from = std::clamp(full_from, shown_from, end);
    inputs_.clear();
    inputs_.add({.token_ids = ids.first(static_cast<std::size_t>(end)),
                 .first_position = first,
                 .blocks = block_table_,
                 .num_logits = end - known_from,
                 .cached_len = pass.num_cached_tokens,
                 .full_from = full_from});
    const std::int64_t num_unknown = std::int64_t{known_from - shown_from} * info.vocab_size;
    std::fill_n(logits_.as<float>(), num_unknown, std::numeric_limits<float>::quiet_NaN());
    model_->forward(stream_, inputs_.view(), cache, logits_.as<float>() + num_unknown);
    num_partial_tokens_ += known_from - shown_from;
    first = end;
    if (shown_from == end) continue;
    if (Status status = sink(shown_from, end - shown_from, logits_.as<float>()); !status) return status;
  }
  return {};
}

}  // namespace thalweg::worker
