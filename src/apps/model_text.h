// The text side of a checkpoint: tokenizer, chat template, end tokens, the sampling its makers recommend.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "text/chat_template.h"
#include "text/tokenizer.h"
#include "thalweg/error.h"
#include "thalweg/request.h"
#include "weights/checkpoint.h"

namespace thalweg::apps {

struct ModelText {
  std::unique_ptr<text::Tokenizer> tokenizer;
  std::unique_ptr<text::ChatTemplate> chat_template;  // or the model's own encoding; null: it has none
  std::vector<std::int32_t> eos_token_ids;
  SamplingParams default_sampling;  // generation_config.json's, otherwise SamplingParams{}
};

Result<ModelText> read_model_text(const weights::Checkpoint& checkpoint);

}  // namespace thalweg::apps
