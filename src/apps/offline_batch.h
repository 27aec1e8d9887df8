// Requests of a file through an engine: the bodies that the HTTP routes take, answers in the order of the file.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "server/answer.h"
#include "server/prepare.h"
#include "thalweg/engine.h"

namespace thalweg::apps {

struct BatchChoice {
  std::string text;
  std::vector<std::int32_t> token_ids;             // all sampled tokens, a stop token included
  std::vector<server::TokenEntry> entries;         // of the text; with echo, the prompt's before them
  std::vector<server::TokenEntry> prompt_entries;  // if prompt_logprobs asks for them
  std::string finish_reason;                       // "stop", "length" or "error"
};

/// One line: the body that a route would take.
struct BatchBody {
  server::GenerateRoute route = server::GenerateRoute::kCompletion;
  std::string json;
};

/// One line's answer. A refused line has only `error`.
struct BatchAnswer {
  std::vector<BatchChoice> choices;  // prompt-major
  server::Usage usage;
  std::string error;
};

/// Prepares and submits at most `window` lines ahead, hands answers to `write` in order. The answers depend on the
/// lines and the model alone.
void run_batch(Engine& engine, const server::ServedModel& model, const std::vector<BatchBody>& bodies,
               std::size_t window, const std::function<void(std::size_t line, const BatchAnswer& answer)>& write);

}  // namespace thalweg::apps
