#include "models/deepseek_v41/released.h"

namespace thalweg::models::deepseek_v41 {
namespace {

IndexSettings released_index() {
  IndexSettings index{.kv_sources = {2, 8, 14, 20},
                      .index_sources = {2, 8, 14, 20, 24, 28, 32, 36},
                      .num_heads = 32,
                      .head_dim = 128,
                      .top_k = 512,
                      .candidate_source = 20,
                      .candidate_block_size = 8,
                      .max_candidate_blocks = 2048};
  for (const auto& [ratio, num_layers] : {std::pair{0, 2}, {2, 18}, {1, 20}}) {
    index.compress_ratios.insert(index.compress_ratios.end(), static_cast<std::size_t>(num_layers), ratio);
  }
  return index;
}

}  // namespace

Config released_config() {
  return {.vocab_size = 129280,
          .max_position = 1048576,
          .num_layers = 40,
          .hidden_size = 5120,
          .num_heads = 64,
          .head_dim = 512,
          .rope_dim = 64,
          .q_lora_rank = 1280,
          .num_output_groups = 8,
          .output_lora_rank = 1024,
          .window = 128,
          .intermediate_size = 2304,
          .activation_limit = 10.0F,
          .routed_scale = 1.5F,
          .norm_epsilon = 1e-20F,
          .image_token_id = 129264,
          .experts = {.num_experts = 384, .top_k = 6},
          .mhc = {.num_streams = 4,
                  .hidden_size = 5120,
                  .norm_epsilon = 1e-20F,
                  .epsilon = 1e-6F,
                  .num_sinkhorn_steps = 20},
          .rope = {.factor = 16.0},
          .index = released_index(),
          .engram = {.hash = {.layer_ids = {1, 14},
                              .max_ngram_size = 4,
                              .num_heads = 8,
                              .min_vocab_size = 16000000,
                              .compressed_vocab_size = 99092},
                     .pad_token_id = 2,
                     .head_dim = 256,
                     .num_rows = {384006168, 384016682}},
          .dspark = {.num_stages = 3,
                     .block_size = 5,
                     .noise_token_id = 128799,
                     .target_layers = {37, 38, 39},
                     .markov_rank = 256,
                     .experts = {.num_experts = 128, .top_k = 3}}};
}

VisionTower released_vision_tower() {
  return {.num_layers = 32, .hidden_size = 1024, .intermediate_size = 2816, .patch_size = 14, .downsample_ratio = 3};
}

}  // namespace thalweg::models::deepseek_v41
