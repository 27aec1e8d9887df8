// Spells tensor names the way the checkpoint does.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "layers/attention.h"
#include "layers/gated_mlp.h"
#include "weights/checkpoint.h"

namespace thalweg::models {

/// Names come without ".weight" or ".bias".
class TensorNames {
 public:
  explicit TensorNames(const weights::Checkpoint& checkpoint);

  bool gguf() const { return gguf_; }
  std::string embedding() const;
  std::string head() const;
  std::string final_norm() const;
  /// A tensor of one layer: "blk.3.<gguf>" or "model.layers.3.<hugging_face>".
  std::string block(std::int32_t layer, std::string_view gguf, std::string_view hugging_face) const;

  /// The parts that every family here names alike.
  layers::AttentionNames attention(std::int32_t layer) const;
  layers::GatedMlpNames mlp(std::int32_t layer) const;

 private:
  bool gguf_;
  std::string body_;  // "model.", or what a multimodal checkpoint puts before the text model
  std::string head_;
};

}  // namespace thalweg::models
