// Shapes for test and bench.
#pragma once

#include <algorithm>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "device/dtype.h"

namespace thalweg::kernels::attention {

/// One sequence of a step: its context after the step, and how many of those tokens are new.
struct RowShape {
  std::int32_t context_len = 0;
  std::int32_t num_new = 0;
};

struct Case {
  std::string name;
  std::int32_t num_heads = 0;
  std::int32_t num_kv_heads = 0;
  std::int32_t head_dim = 0;
  std::int32_t block_size = 16;
  device::DType dtype = device::DType::kF16;
  std::int32_t window = 0;
  std::vector<RowShape> rows;
};

inline std::vector<Case> smoke_cases() {
  return {{"one_token", 1, 1, 64, 16, device::DType::kF32, 0, {{1, 1}}},
          {"small_prefill", 3, 1, 64, 16, device::DType::kF16, 0, {{20, 20}}},
          {"small_mixed", 4, 2, 64, 16, device::DType::kBF16, 0, {{33, 1}, {17, 17}, {70, 5}}}};
}

/// Sizes at and around the edges of groups of 16, tiles of 64 and partitions of 256 tokens, of windows and of blocks.
inline std::vector<Case> edge_cases() {
  using enum device::DType;
  std::vector<Case> cases;
  for (const std::int32_t context : {15, 16, 17, 63, 64, 65, 127, 128, 129, 255, 256, 257, 511, 513}) {
    cases.push_back({"context_" + std::to_string(context),
                     3,
                     1,
                     64,
                     16,
                     kF16,
                     0,
                     {{context, 1}, {context, std::min(context, 130)}}});
  }
  for (const std::int32_t window : {1, 2, 15, 16, 17, 63, 64, 65, 200, 256, 257, 1000}) {
    cases.push_back(
        {"window_" + std::to_string(window), 4, 2, 64, 16, kF16, window, {{300, 150}, {530, 2}, {1, 1}, {601, 40}}});
  }
  for (const std::int32_t block_size : {1, 4, 8, 24, 16, 32, 48, 64, 128}) {
    cases.push_back({"block_" + std::to_string(block_size), 2, 1, 64, block_size, kF16, 0, {{150, 150}, {77, 1}}});
  }
  for (const std::int32_t head_dim : {8, 16, 24, 40, 64, 72, 80, 96, 128, 256, 264, 512}) {
    cases.push_back({"head_dim_" + std::to_string(head_dim), 3, 1, head_dim, 16, kF16, 0, {{90, 90}, {77, 1}}});
  }
  for (const std::int32_t group : {1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 71, 130}) {
    cases.push_back({"group_" + std::to_string(group), group, 1, 64, 16, kF32, 0, {{100, 100}, {77, 3}, {80, 1}}});
  }
  for (std::int32_t num_kv_heads = 2; num_kv_heads <= 8; ++num_kv_heads) {
    cases.push_back({"kv_heads_" + std::to_string(num_kv_heads),
                     2 * num_kv_heads,
                     num_kv_heads,
                     64,
                     16,
                     kBF16,
                     0,
                     {{70, 70}, {77, 1}}});
  }
  cases.push_back({"rows_without_tokens", 2, 1, 64, 16, kF16, 0, {{40, 0}, {33, 33}, {9, 0}, {9, 1}, {64, 0}}});
  return cases;
}

inline std::vector<Case> model_cases() {
  using enum device::DType;
  return {{"smollm2_decode", 9, 3, 64, 16, kF16, 0, {{320, 1}, {321, 1}, {64, 1}, {900, 1}}},
          {"smollm2_prefill", 9, 3, 64, 16, kF16, 0, {{512, 200}}},
          {"qwen2.5_0.5b", 14, 2, 64, 16, kF16, 0, {{200, 100}, {300, 1}}},
          {"qwen3_0.6b", 16, 8, 128, 16, kBF16, 0, {{150, 150}, {290, 1}}},
          {"gemma3_270m_local", 4, 1, 256, 32, kF16, 512, {{600, 64}, {700, 1}}},
          {"stablelm_80", 32, 32, 80, 16, kF16, 0, {{60, 10}, {130, 1}}},
          {"phi3_96", 32, 32, 96, 16, kF16, 0, {{60, 10}, {130, 1}}}};
}

inline std::vector<Case> random_cases(std::uint32_t seed, int num_cases) {
  std::mt19937 random(seed);
  const auto pick = [&](std::int32_t low, std::int32_t high) {
    return std::uniform_int_distribution<std::int32_t>(low, high)(random);
  };
  std::vector<Case> cases;
  for (int i = 0; i < num_cases; ++i) {
    Case one;
    one.name = "random_" + std::to_string(seed) + "_" + std::to_string(i);
    one.num_kv_heads = pick(1, 4);
    one.num_heads = one.num_kv_heads * pick(1, 5);
    one.head_dim = 8 * pick(1, 17);
    one.block_size = 16 * pick(1, 3);
    one.dtype = std::vector{device::DType::kF32, device::DType::kF16, device::DType::kBF16}[pick(0, 2)];
    one.window = pick(0, 1) == 0 ? 0 : pick(1, 400);
    for (std::int32_t row = pick(1, 6); row > 0; --row) {
      const std::int32_t context = pick(1, 400);
      one.rows.push_back({context, pick(0, 2) == 0 ? 1 : pick(1, std::min(context, 120))});
    }
    cases.push_back(one);
  }
  return cases;
}

}  // namespace thalweg::kernels::attention
