#include "worker/logits_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <vector>

#include "worker/step_inputs.h"

namespace thalweg::worker {
namespace {

constexpr std::int32_t kDefaultChunk = 512;

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
  const std::int64_t row_bytes = std::int64_t{model.info().vocab_size} * static_cast<std::int64_t>(sizeof(float));
  const std::int64_t most = std::clamp<std::int64_t>(kMaxLogitBytes / row_bytes, 1, max_tokens);
  const std::int64_t chunk = std::min<std::int64_t>(options.chunk > 0 ? options.chunk : kDefaultChunk, most);
  return LogitsRun(model, stream, max_tokens, static_cast<std::int32_t>(chunk), options.decode_from);
}

LogitsRun::LogitsRun(models::Model& model, device::Stream stream, std::int32_t max_tokens, std::int32_t chunk,
                     std::int32_t decode_from)
    : model_(&model),
      stream_(stream),
      max_tokens_(max_tokens),
      chunk_(chunk),
      decode_from_(decode_from),
      num_blocks_((max_tokens + model.info().cache.block_size - 1) / model.info().cache.block_size),
      blocks_(static_cast<std::size_t>(num_blocks_ * model.info().cache.bytes_per_block)),
      state_(static_cast<std::size_t>(model.info().cache.state_bytes_per_slot)),
      logits_(static_cast<std::size_t>(chunk) * static_cast<std::size_t>(model.info().vocab_size) * sizeof(float)) {
  model_->reserve(chunk_);
}

Status LogitsRun::run(std::span<const std::int32_t> ids, const LogitsSink& sink) {
  const auto num_tokens = static_cast<std::int32_t>(std::min<std::size_t>(ids.size(), INT32_MAX));
  if (num_tokens > max_tokens_) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("the text has {} tokens; this run was made for at most {}", num_tokens, max_tokens_),
                "ids");
  }
  const std::int32_t vocab_size = model_->info().vocab_size;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] >= 0 && ids[i] < vocab_size) continue;
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("ids[{}] is {}; valid ids are 0 to {}", i, ids[i], vocab_size - 1), "ids");
  }
  std::vector<std::int32_t> table(static_cast<std::size_t>(num_blocks_));
  std::iota(table.begin(), table.end(), 0);
  if (state_.size() > 0) std::memset(state_.data(), 0, state_.size());
  const models::CacheMemory cache{blocks_.data(), num_blocks_, state_.data(), 1};
  StepInputs inputs(model_->info().cache.block_size);
  const std::int32_t decode_from = decode_from_ < 0 ? num_tokens : std::min(decode_from_, num_tokens);
  for (std::int32_t first = 0; first < num_tokens;) {
    const std::int32_t count = first < decode_from ? std::min(chunk_, decode_from - first) : 1;
    inputs.clear();
    inputs.add(0, first, ids.subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(count)), {}, table,
               count);
    model_->forward(stream_, inputs.view(), cache, logits_.as<float>());
    if (Status status = sink(first, count, logits_.as<float>()); !status) return status;
    first += count;
  }
  return {};
}

}  // namespace thalweg::worker
