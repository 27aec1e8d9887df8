#include "models/tensor_names.h"

#include <fmt/core.h>

#include <array>
#include <utility>

namespace thalweg::models {

TensorNames::TensorNames(const weights::Checkpoint& checkpoint)
    : gguf_(checkpoint.kind() == weights::CheckpointKind::kGguf), body_("model."), head_("lm_head") {
  // Multimodal checkpoints of transformers 4 and 5.
  constexpr std::array<std::pair<const char*, const char*>, 2> kWrappers = {{
      {"language_model.model.", "language_model.lm_head"},
      {"model.language_model.", "lm_head"},
  }};
  for (const auto& [body, head] : kWrappers) {
    if (checkpoint.find(std::string(body) + "embed_tokens.weight") == nullptr) continue;
    body_ = body;
    head_ = head;
  }
}

std::string TensorNames::embedding() const { return gguf_ ? "token_embd" : body_ + "embed_tokens"; }

std::string TensorNames::head() const { return gguf_ ? "output" : head_; }

std::string TensorNames::final_norm() const { return gguf_ ? "output_norm" : body_ + "norm"; }

std::string TensorNames::block(std::int32_t layer, std::string_view gguf, std::string_view hugging_face) const {
  return gguf_ ? fmt::format("blk.{}.{}", layer, gguf) : fmt::format("{}layers.{}.{}", body_, layer, hugging_face);
}

layers::AttentionNames TensorNames::attention(std::int32_t layer) const {
  return {.q = block(layer, "attn_q", "self_attn.q_proj"),
          .k = block(layer, "attn_k", "self_attn.k_proj"),
          .v = block(layer, "attn_v", "self_attn.v_proj"),
          .out = block(layer, "attn_output", "self_attn.o_proj"),
          .q_norm = block(layer, "attn_q_norm", "self_attn.q_norm"),
          .k_norm = block(layer, "attn_k_norm", "self_attn.k_norm")};
}

layers::GatedMlpNames TensorNames::mlp(std::int32_t layer) const {
  return {.gate = block(layer, "ffn_gate", "mlp.gate_proj"),
          .up = block(layer, "ffn_up", "mlp.up_proj"),
          .down = block(layer, "ffn_down", "mlp.down_proj")};
}

}  // namespace thalweg::models
