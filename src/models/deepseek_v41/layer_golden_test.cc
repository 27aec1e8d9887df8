// Each layer alone: golden residual streams in, golden residual streams out, and everything in between.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "device/thread_pool.h"
#include "models/deepseek_v41/backbone.h"
#include "models/deepseek_v41/golden_files.h"
#include "weights/checkpoint.h"
#include "weights/deepseek_names.h"

namespace thalweg::models::deepseek_v41 {
namespace {

struct Shown {
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  std::vector<float> data;
};

/// Differences between what was computed and what should be, over the scale of the latter.
struct Deviation {
  double median = 0.0;
  double largest = 0.0;
  double share_above = 0.0;  // of values that differ by more than 1e-4 of the scale
};

Deviation deviation(const std::vector<float>& found, const std::vector<float>& wanted) {
  if (found.size() != wanted.size() || wanted.empty()) return {1.0, 1.0, 1.0};
  double scale = 0.0;
  for (const float x : wanted) scale = std::max(scale, std::abs(static_cast<double>(x)));
  std::vector<double> differences;
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    differences.push_back(std::abs(static_cast<double>(found[i]) - static_cast<double>(wanted[i])) /
                          std::max(scale, 1e-30));
  }
  const auto middle = differences.begin() + static_cast<std::ptrdiff_t>(differences.size() / 2);
  const auto above = std::ranges::count_if(differences, [](double x) { return !(x <= 1e-4); });
  std::nth_element(differences.begin(), middle, differences.end());
  return {*middle, *std::ranges::max_element(differences),
          static_cast<double>(above) / static_cast<double>(differences.size())};
}

double cosine(const std::vector<float>& a, const std::vector<float>& b) {
  double dot = 0.0;
  double a_squared = 0.0;
  double b_squared = 0.0;
  for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    dot += static_cast<double>(a[i]) * static_cast<double>(b[i]);
    a_squared += static_cast<double>(a[i]) * static_cast<double>(a[i]);
    b_squared += static_cast<double>(b[i]) * static_cast<double>(b[i]);
  }
  return a.size() == b.size() ? dot / std::sqrt(a_squared * b_squared) : 0.0;
}

class Layers : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (!has_golden_files()) GTEST_SKIP() << "THALWEG_TEST_ASSETS is not set";
    const std::string folder = golden_folder(GetParam());
    Result<std::unique_ptr<weights::Checkpoint>> opened = weights::Checkpoint::open(folder);
    ASSERT_TRUE(opened) << opened.error().message;
    checkpoint_ = std::move(*opened);
    Result<Config> config = read_config(*checkpoint_);
    ASSERT_TRUE(config) << config.error().message;
    config_ = std::move(*config);
    layers::WeightReader reader(*checkpoint_, stream_, {}, weights::deepseek_tensor_name);
    weights_ = load_weights(reader, config_, false);
    ASSERT_TRUE(reader.status()) << reader.status().error().message;
    layout_ = CacheLayout(config_, 16, 5, false);
    Result<MappedFile> classes = MappedFile::open(folder + "/engram_token_map.i32");
    ASSERT_TRUE(classes);
    classes_.resize(classes->bytes().size() / sizeof(std::int32_t));
    std::memcpy(classes_.data(), classes->bytes().data(), classes->bytes().size());
  }

  /// Runs all layers on a golden prompt, each on the golden output of the one before.
  void run(const std::string& prompt, Numerics numerics) {
    const bool is_fp32 = numerics == Numerics::kFp32;
    golden_ = std::make_unique<GoldenFile>(golden_folder(GetParam()) +
                                           (is_fp32 ? "/golden_fp32.safetensors" : "/golden_ref.safetensors"));
    const std::vector<std::int32_t> ids = golden_->ints(prompt + ".ids");
    const auto num_tokens = static_cast<std::int32_t>(ids.size());
    std::vector<std::int32_t> positions(ids.size());
    std::iota(positions.begin(), positions.end(), 0);
    const std::int32_t num_blocks = (num_tokens + 15) / 16;
    std::vector<std::int32_t> table(static_cast<std::size_t>(num_blocks));
    for (std::int32_t i = 0; i < num_blocks; ++i) table[static_cast<std::size_t>(i)] = num_blocks - 1 - i;
    const std::vector<std::int32_t> cu_seqlens{0, num_tokens}, context_lens{num_tokens}, slots{0}, zeros{0};
    const std::vector<std::span<const std::int32_t>> histories{{}};
    device::Buffer blocks(static_cast<std::size_t>(num_blocks * layout_.spec().bytes_per_block));
    device::Buffer states(static_cast<std::size_t>(layout_.spec().state_bytes_per_slot));
    const step::BatchView batch{.token_ids = ids,
                                .positions = positions,
                                .cu_seqlens = cu_seqlens,
                                .context_lens = context_lens,
                                .block_tables = table,
                                .max_blocks_per_row = num_blocks,
                                .slots = slots,
                                .logit_tokens = {},
                                .histories = histories,
                                .cached_lens = zeros,
                                .full_from = zeros};
    const ActivationTap tap = [&](std::string_view name, std::int64_t rows, std::int64_t cols, const float* data) {
      shown_[std::string(name)] = {rows, cols, std::vector<float>(data, data + rows * cols)};
    };
    Backbone backbone(config_, weights_, layout_, rounding_of(numerics), classes_);
    backbone.reserve(num_tokens);
    backbone.begin(stream_, batch, {blocks.data(), num_blocks, states.data(), 1}, &tap);
    for (std::int32_t l = 0; l < config_.num_layers; ++l) {
      if (l > 0) {
        const std::string before = prompt + ".layer" + std::to_string(l - 1);
        const std::vector<float> streams = golden_->floats(before + ".X");
        const std::vector<float> pre = golden_->floats(before + ".pre");
        std::ranges::copy(streams, backbone.pass().work.streams.data());
        std::ranges::copy(pre, backbone.pass().work.pre.data());
      }
      backbone.layer(l);
      if (is_fp32) {
        compare(prompt, l);
      } else {
        expect_parallel(prompt + ".layer" + std::to_string(l) + ".", "layers." + std::to_string(l) + ".");
      }
    }
  }

  void compare(const std::string& prompt, std::int32_t layer) {
    const std::string golden = prompt + ".layer" + std::to_string(layer) + ".";
    const std::string shown = "layers." + std::to_string(layer) + ".";
    for (const char* name :
         {"attn_in", "attn_out", "attn_core", "ffn_in", "ffn_out", "X", "pre", "route_w", "latent", "engram_gate"}) {
      if (!golden_->has(golden + name)) continue;
      const Deviation found = deviation(shown_[shown + name].data, golden_->floats(golden + name));
      EXPECT_LE(found.median, 1e-5) << golden << name << ", largest " << found.largest;
      EXPECT_LE(found.share_above, 0.02) << golden << name << ", largest " << found.largest;
    }
    for (const char* name : {"index_k", "compressed_kv"}) {  // values of FP4 codes
      if (golden_->has(golden + name)) {
        EXPECT_EQ(shown_[shown + name].data, golden_->floats(golden + name)) << golden << name;
      }
    }
    if (golden_->has(golden + "engram_rows")) expect_equal(golden + "engram_rows", shown + "engram_rows");
    if (golden_->has(golden + "route_idx")) expect_same_sets(golden + "route_idx", shown + "route_idx");
    if (golden_->has(golden + "topk")) expect_same_sets(golden + "topk", shown + "topk");
  }

  /// With activations rounded, single codes and bf16 values fall the other way.
  void expect_parallel(const std::string& golden, const std::string& shown) {
    for (const char* name : {"attn_in", "attn_out", "ffn_in", "ffn_out", "X"}) {
      if (!golden_->has(golden + name)) continue;
      EXPECT_GE(cosine(shown_[shown + name].data, golden_->floats(golden + name)), 0.999) << golden << name;
    }
  }

  void expect_equal(const std::string& golden, const std::string& shown) {
    const std::vector<std::int32_t> wanted = golden_->ints(golden);
    EXPECT_EQ(std::vector<float>(wanted.begin(), wanted.end()), shown_[shown].data) << golden;
  }

  /// Row by row the same numbers; -1 stands for nothing.
  void expect_same_sets(const std::string& golden, const std::string& shown) {
    const std::vector<std::int32_t> wanted = golden_->ints(golden);
    const Shown& found = shown_[shown];
    const auto width = static_cast<std::size_t>(golden_->shape(golden).back());
    ASSERT_EQ(static_cast<std::size_t>(found.rows) * width, wanted.size()) << golden;
    for (std::size_t row = 0; row < static_cast<std::size_t>(found.rows); ++row) {
      std::vector<std::int32_t> a(wanted.begin() + static_cast<std::ptrdiff_t>(row * width),
                                  wanted.begin() + static_cast<std::ptrdiff_t>((row + 1) * width));
      std::vector<std::int32_t> b;
      for (std::int64_t i = 0; i < found.cols; ++i) {
        b.push_back(static_cast<std::int32_t>(
            found.data[row * static_cast<std::size_t>(found.cols) + static_cast<std::size_t>(i)]));
      }
      std::erase(a, -1);
      std::erase(b, -1);
      std::ranges::sort(a);
      std::ranges::sort(b);
      EXPECT_EQ(a, b) << golden << " row " << row;
    }
  }

  device::ThreadPool threads_{2};
  device::Stream stream_{.cpu_level = device::detect_cpu_level(), .threads = &threads_};
  std::unique_ptr<weights::Checkpoint> checkpoint_;
  Config config_;
  Weights weights_;
  CacheLayout layout_;
  std::vector<std::int32_t> classes_;
  std::unique_ptr<GoldenFile> golden_;
  std::map<std::string, Shown> shown_;
};

TEST_P(Layers, FollowTheGoldenOnesPromptOf7) { run("len7", Numerics::kFp32); }
TEST_P(Layers, FollowTheGoldenOnesPromptOf40) { run("len40", Numerics::kFp32); }

class RoundedLayers : public Layers {};
TEST_P(RoundedLayers, FollowTheGoldenOnesPromptOf7) { run("len7", Numerics::kReference); }
TEST_P(RoundedLayers, FollowTheGoldenOnesPromptOf40) { run("len40", Numerics::kReference); }
TEST_P(RoundedLayers, AsAcceleratorsRoundFollowThemToo) { run("len40", Numerics::kFast); }

INSTANTIATE_TEST_SUITE_P(Checkpoints, RoundedLayers, testing::Values("micro-calm"));
INSTANTIATE_TEST_SUITE_P(Checkpoints, Layers, testing::Values("micro", "micro-calm", "heads-calm", "odd", "wide"));

}  // namespace
}  // namespace thalweg::models::deepseek_v41
