#include "weights/deepseek_names.h"

#include <gtest/gtest.h>

namespace thalweg::weights {
namespace {

TEST(DeepseekNames, VariantsHaveOneName) {
  EXPECT_EQ(deepseek_tensor_name("layers.3.attn.wq_a.weight"), "layers.3.attn.wq_a.weight");
  EXPECT_EQ(deepseek_tensor_name("model.layers.3.self_attn.wq_a.weight"), "layers.3.attn.wq_a.weight");
  EXPECT_EQ(deepseek_tensor_name("model.layers.3.self_attn.wq_a.weight_scale_inv"), "layers.3.attn.wq_a.scale");
  EXPECT_EQ(deepseek_tensor_name("layers.3.mlp.experts.17.w1.scale"), "layers.3.ffn.experts.17.w1.scale");
  EXPECT_EQ(deepseek_tensor_name("mtp.0.mlp.gate.e_score_correction_bias"), "mtp.0.ffn.gate.bias");
  EXPECT_EQ(deepseek_tensor_name("model.embed.weight"), "embed.weight");
}

TEST(DeepseekNames, OthersKeepTheirs) {
  for (const char* name : {"vision.blocks.3.mlp.w1.weight", "vision.blocks.3.self_attn.wo.bias", "head.weight",
                           "image_start", "layers.3.attn_sink", "layers.3.self_attn_norm.weight", ""}) {
    EXPECT_EQ(deepseek_tensor_name(name), name);
  }
}

}  // namespace
}  // namespace thalweg::weights
