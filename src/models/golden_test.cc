// Logits of tiny checkpoints of every family against what transformers computed (python/record_model_vectors.py,
// python/record_deepseek_vectors.py).
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "device/thread_pool.h"
#include "models/registry.h"
#include "models/sequence_batch.h"

namespace thalweg::models {
namespace {

constexpr const char* kFolder = "tests/golden/models/";
constexpr std::int32_t kMaxTokens = 288;  // of a sequence

struct Vectors {
  struct Prompt {
    std::vector<std::int32_t> ids;
    std::vector<float> logits;  // [num_tokens, vocab_size]
  };
  std::int32_t vocab_size = 0;
  std::vector<Prompt> prompts;
};

Vectors read_vectors(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  const auto read = [&](void* data, std::size_t size) { file.read(static_cast<char*>(data), static_cast<long>(size)); };
  char magic[8];
  std::int32_t num_prompts = 0;
  Vectors vectors;
  read(magic, sizeof(magic));
  EXPECT_EQ(std::string_view(magic, sizeof(magic)), "TWVECTOR") << path;
  read(&num_prompts, sizeof(num_prompts));
  read(&vectors.vocab_size, sizeof(vectors.vocab_size));
  vectors.prompts.resize(static_cast<std::size_t>(num_prompts));
  for (Vectors::Prompt& prompt : vectors.prompts) {
    std::int32_t num_tokens = 0;
    read(&num_tokens, sizeof(num_tokens));
    prompt.ids.resize(static_cast<std::size_t>(num_tokens));
    prompt.logits.resize(prompt.ids.size() * static_cast<std::size_t>(vectors.vocab_size));
    read(prompt.ids.data(), prompt.ids.size() * sizeof(std::int32_t));
    read(prompt.logits.data(), prompt.logits.size() * sizeof(float));
  }
  EXPECT_TRUE(file.good()) << path << " is too short";
  return vectors;
}

struct Golden {
  const char* checkpoint;
  const char* vectors;
  double tolerance = 1e-5;  // of the largest logit
  device::DType kv_dtype = device::DType::kF32;
};

// Activations are rounded to int8 in products with quantised weights; that, not the arithmetic, sets the tolerance. A
// random network amplifies a single code that falls the other way on another instruction set.
constexpr double kQuantized = 0.06;

constexpr Golden kGoldens[] = {
    {"llama", "llama"},
    {"llama.f32.gguf", "llama"},
    {"llama.q8_0.gguf", "llama", kQuantized},
    {"llama_untied_f32", "llama_untied_f32"},
    {"llama_linear_f16", "llama_linear_f16"},
    {"llama_linear_f16.f16.gguf", "llama_linear_f16"},
    {"llama_llama3", "llama_llama3"},
    {"llama_llama3.bf16.gguf", "llama_llama3"},
    {"llama_llama3_v4", "llama_llama3_v4"},
    {"llama_yarn", "llama_yarn"},
    {"llama_yarn.bf16.gguf", "llama_yarn"},
    {"llama_yarn_v4", "llama_yarn_v4"},
    {"llama_dynamic", "llama_dynamic"},
    {"qwen2", "qwen2"},
    {"qwen2.bf16.gguf", "qwen2"},
    {"qwen2_window", "qwen2_window"},
    {"qwen3_sharded", "qwen3_sharded"},
    {"qwen3_sharded.bf16.gguf", "qwen3_sharded"},
    {"qwen3_block_fp8", "qwen3_block_fp8"},
    {"qwen3_moe", "qwen3_moe"},
    {"qwen3_moe.bf16.gguf", "qwen3_moe"},
    {"qwen3_moe_mixed", "qwen3_moe_mixed"},
    {"gemma3", "gemma3"},
    {"gemma3_v4", "gemma3_v4"},
    {"gemma3_v4.bf16.gguf", "gemma3_v4"},
    {"gemma3_wrapped", "gemma3_wrapped"},
    {"deepseek_v3", "deepseek_v3"},
    {"deepseek_v3_direct", "deepseek_v3_direct"},
    {"deepseek_v3_block_fp8", "deepseek_v3_block_fp8"},
    {"deepseek_v32", "deepseek_v32"},
    {"deepseek_v4", "deepseek_v4"},
    {"llama", "llama", 0.01, device::DType::kF16},
    {"llama", "llama", 0.05, device::DType::kBF16},
};

void PrintTo(const Golden& golden, std::ostream* out) {
  *out << golden.checkpoint << " with " << device::dtype_name(golden.kv_dtype) << " cache";
}

class GoldenLogits : public ::testing::TestWithParam<Golden> {
 protected:
  void SetUp() override {
    auto checkpoint = weights::Checkpoint::open(std::string(kFolder) + GetParam().checkpoint);
    ASSERT_TRUE(checkpoint) << checkpoint.error().message;
    auto model = load_model(**checkpoint, stream_, {.kv_dtype = GetParam().kv_dtype});
    ASSERT_TRUE(model) << model.error().message;
    model_ = std::move(*model);
    model_->reserve(kMaxTokens);
    vectors_ = read_vectors(std::string(kFolder) + GetParam().vectors + ".vectors");
    ASSERT_EQ(model_->info().vocab_size, vectors_.vocab_size);
  }

  std::vector<float> run(const std::vector<std::int32_t>& ids, std::size_t chunk) {
    return SequenceBatch(*model_, stream_, 1, kMaxTokens).run(ids, chunk);
  }

  device::ThreadPool threads_{2, false};
  device::Stream stream_{.cpu_level = device::detect_cpu_level(), .threads = &threads_};
  std::unique_ptr<Model> model_;
  Vectors vectors_;
};

TEST_P(GoldenLogits, EqualTransformers) {
  const auto vocab = static_cast<std::size_t>(vectors_.vocab_size);
  for (const Vectors::Prompt& prompt : vectors_.prompts) {
    const std::vector<float> logits = run(prompt.ids, prompt.ids.size());
    ASSERT_EQ(logits.size(), prompt.logits.size());
    double scale = 0.0;
    double worst = 0.0;
    for (std::size_t i = 0; i < logits.size(); ++i) {
      scale = std::max(scale, std::abs(static_cast<double>(prompt.logits[i])));
      worst = std::max(worst, std::abs(static_cast<double>(logits[i]) - prompt.logits[i]));
    }
    EXPECT_LE(worst, GetParam().tolerance * scale) << "largest logit " << scale;
    if (GetParam().tolerance > 1e-4) continue;  // close calls may fall either way
    for (std::size_t token = 0; token < prompt.ids.size(); ++token) {
      const auto best = [&](const std::vector<float>& all) {
        const auto row = std::span(all).subspan(token * vocab, vocab);
        return std::ranges::max_element(row) - row.begin();
      };
      EXPECT_EQ(best(logits), best(prompt.logits)) << "token " << token;
    }
  }
}

TEST_P(GoldenLogits, DoNotDependOnChunks) {
  const std::vector<std::int32_t>& ids = vectors_.prompts.front().ids;
  const std::vector<float> whole = run(ids, ids.size());
  for (const std::size_t chunk : {1, 5, 16, 33}) EXPECT_EQ(run(ids, chunk), whole) << "chunks of " << chunk;
}

TEST_P(GoldenLogits, OfTheLastTokenAlone) {
  const std::vector<std::int32_t>& ids = vectors_.prompts.front().ids;
  const std::vector<float> whole = run(ids, ids.size());
  const std::vector<float> last = SequenceBatch(*model_, stream_, 1, kMaxTokens).step({ids}, false);
  EXPECT_TRUE(std::ranges::equal(last, std::span(whole).last(last.size())));
}

TEST_P(GoldenLogits, DoNotDependOnTheirBatch) {
  // One step: the last 30 tokens of the long prompt behind what is cached, and beside them the short prompt.
  const std::vector<std::int32_t>& ids = vectors_.prompts[0].ids;
  const std::vector<std::int32_t>& others = vectors_.prompts[1].ids;
  constexpr std::size_t kNew = 30;
  SequenceBatch batch(*model_, stream_, 2, kMaxTokens);
  batch.step({std::span(ids).first(ids.size() - kNew), {}}, false);
  const std::vector<float> together = batch.step({std::span(ids).last(kNew), others}, true);

  std::vector<float> alone = run(ids, ids.size());
  alone.erase(alone.begin(), alone.end() - static_cast<std::ptrdiff_t>(kNew) * vectors_.vocab_size);
  const std::vector<float> other_alone = run(others, others.size());
  alone.insert(alone.end(), other_alone.begin(), other_alone.end());
  EXPECT_EQ(together, alone);
}

INSTANTIATE_TEST_SUITE_P(Families, GoldenLogits, ::testing::ValuesIn(kGoldens),
                         [](const ::testing::TestParamInfo<Golden>& golden) {
                           std::string name = std::string(golden.param.checkpoint) + "_" +
                                              std::string(device::dtype_name(golden.param.kv_dtype));
                           std::ranges::replace_if(
                               name, [](char c) { return std::isalnum(c) == 0; }, '_');
                           return name;
                         });

}  // namespace
}  // namespace thalweg::models
