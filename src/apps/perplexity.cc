#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "apps/commands.h"
#include "apps/loaded_model.h"
#include "apps/progress_bar.h"
#include "worker/logits_run.h"

namespace thalweg::apps {
namespace {

/// -log softmax(logits)[target], in double.
double surprise(const float* logits, std::int64_t vocab_size, std::int32_t target) {
  const double top = *std::max_element(logits, logits + vocab_size);
  double sum = 0.0;
  for (std::int64_t i = 0; i < vocab_size; ++i) sum += std::exp(static_cast<double>(logits[i]) - top);
  return std::log(sum) + top - static_cast<double>(logits[target]);
}

/// The text in chunks of `context` tokens, each begun with the BOS token where the tokenizer adds one.
std::vector<std::vector<std::int32_t>> chunks_of(const std::vector<std::int32_t>& ids, const PerplexityCommand& command,
                                                 const text::Tokenizer& tokenizer) {
  const auto context = static_cast<std::size_t>(command.context);
  std::size_t num_chunks = ids.size() / context;
  if (command.max_chunks > 0) num_chunks = std::min(num_chunks, static_cast<std::size_t>(command.max_chunks));
  std::vector<std::vector<std::int32_t>> chunks;
  for (std::size_t i = 0; i < num_chunks; ++i) {
    chunks.emplace_back(ids.begin() + static_cast<std::ptrdiff_t>(i * context),
                        ids.begin() + static_cast<std::ptrdiff_t>((i + 1) * context));
    if (tokenizer.adds_bos() && tokenizer.bos_token_id()) chunks.back().front() = *tokenizer.bos_token_id();
  }
  return chunks;
}

Status measure(const PerplexityCommand& command) {
  std::ifstream stream(command.input, std::ios::binary);
  if (!stream) return fail(ErrorCode::kNotFound, fmt::format("cannot read {}", command.input), "input");
  const std::string text{std::istreambuf_iterator<char>(stream), {}};
  auto bare = load_bare_model(command.model, command.num_threads, {.kv_dtype = kv_dtype_of(command.kv_dtype)});
  if (!bare) return std::unexpected(bare.error());
  auto model_text = read_model_text(*bare->checkpoint);
  if (!model_text) return std::unexpected(model_text.error());
  auto ids = model_text->tokenizer->encode(text);
  if (!ids) return std::unexpected(ids.error());
  const auto chunks = chunks_of(*ids, command, *model_text->tokenizer);
  if (chunks.empty()) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("{} has {} tokens; one chunk needs {}", command.input, ids->size(), command.context),
                "input");
  }
  auto run = worker::LogitsRun::create(*bare->model, bare->stream, command.context, {});
  if (!run) return std::unexpected(run.error());

  const std::int64_t vocab_size = bare->model->info().vocab_size;
  const std::int32_t first_scored = command.context / 2;
  double total = 0.0;
  std::int64_t num_scored = 0;
  ProgressBar bar("perplexity");
  for (std::size_t i = 0; i < chunks.size(); ++i) {
    const auto& chunk = chunks[i];
    const auto sink = [&](std::int32_t first_token, std::int32_t num_tokens, const float* logits) -> Status {
      for (std::int32_t row = 0; row < num_tokens; ++row) {
        const std::int32_t position = first_token + row;
        if (position < first_scored || position + 1 >= command.context) continue;
        total += surprise(logits + row * vocab_size, vocab_size, chunk[static_cast<std::size_t>(position + 1)]);
        ++num_scored;
      }
      return {};
    };
    if (auto status = run->run(chunk, sink); !status) return status;
    bar.update(static_cast<double>(i + 1) / static_cast<double>(chunks.size()),
               fmt::format("{:.4f}", std::exp(total / static_cast<double>(num_scored))));
  }
  fmt::print("{{\"perplexity\": {:.4f}, \"chunks\": {}, \"context\": {}, \"scored_tokens\": {}}}\n",
             std::exp(total / static_cast<double>(num_scored)), chunks.size(), command.context, num_scored);
  return {};
}

}  // namespace

int run(const PerplexityCommand& command) {
  if (auto status = measure(command); !status) return report(status.error());
  return 0;
}

}  // namespace thalweg::apps
