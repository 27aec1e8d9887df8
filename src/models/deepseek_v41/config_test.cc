// Roles, cache layout and frequencies of the released sizes, and configurations that must be refused.
#include "models/deepseek_v41/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <memory>
#include <sstream>
#include <string>

#include "models/deepseek_v41/cache_layout.h"
#include "models/deepseek_v41/pass.h"
#include "models/deepseek_v41/released.h"
#include "weights/test_files.h"

namespace thalweg::models::deepseek_v41 {
namespace {

using ::testing::HasSubstr;

std::string golden_config() {
  std::ostringstream text;
  text << std::ifstream("tests/golden/deepseek_v41/micro/config.json").rdbuf();
  return text.str();
}

/// config.json alone, with one place changed.
Result<Config> read_changed(const std::string& from, const std::string& to) {
  std::string text = golden_config();
  const std::size_t place = text.find(from);
  if (place == std::string::npos) return fail(ErrorCode::kNotFound, from + " is not in the file");
  text.replace(place, from.size(), to);
  const weights::test_files::TemporaryFolder folder;
  folder.write("config.json", text);
  folder.write("model.safetensors", weights::test_files::aligned_safetensors("{}", ""));
  Result<std::unique_ptr<weights::Checkpoint>> checkpoint = weights::Checkpoint::open(folder.path());
  if (!checkpoint) return std::unexpected(checkpoint.error());
  return read_config(**checkpoint);
}

TEST(Roles, AreThoseOfTheTable) {
  const std::vector<LayerRole> roles = layer_roles(released_config());
  std::string names;
  for (std::int32_t l = 0; l < 40; ++l) names += roles[static_cast<std::size_t>(l)].name(l)[2];
  // wi(n)dow, fu(l)l, re(i)ndex, re(u)se have different third letters.
  EXPECT_EQ(names, "nnluuuuuluuuuuluuuuuluuuiuuuiuuuiuuuiuuu");
  EXPECT_EQ(roles[23].kv_owner, 20);
  EXPECT_EQ(roles[26].index_owner, 24);
  EXPECT_EQ(roles[13].kv_owner, 8);
  EXPECT_EQ(roles[14].engram, 1);
  EXPECT_EQ(released_config().decoder_begin(), 20);
}

TEST(Cache, Takes890BytesPerTokenAndTheRingsOfASequence) {
  const CacheLayout layout(released_config(), 64, 5, true);
  const kv_cache::CacheSpec spec = layout.spec();
  EXPECT_EQ(spec.bytes_per_block, 64 * 890);
  EXPECT_EQ(spec.hit_granularity, 2);
  EXPECT_EQ(spec.replay_tokens, 128);
  // 43 rings of 134 rows, three groups of 8 inputs of 2 * 512 floats, and the header.
  EXPECT_EQ(spec.state_bytes_per_slot, 64 + 43 * 134 * 528 + (64 - 43 * 134 * 528 % 64) % 64 + 3 * 8 * 1024 * 4);
}

TEST(Rope, HasTheTwoFrequencySets) {
  const Frequencies frequencies(released_config());
  const auto expect = [](const std::vector<float>& found, std::size_t j, double wanted) {
    EXPECT_NEAR(found[j], wanted, 1e-6 * wanted) << j;
  };
  expect(frequencies.compressed, 0, 1.0);
  expect(frequencies.compressed, 1, 0.6876560219336321);
  expect(frequencies.compressed, 15, 0.003635538583622384);
  expect(frequencies.compressed, 16, 0.002265625);
  expect(frequencies.compressed, 20, 0.00029697777826169085);
  expect(frequencies.compressed, 24, 1.953125e-05);
  expect(frequencies.compressed, 25, 5.372312671356501e-06);
  expect(frequencies.compressed, 31, 5.680529036909976e-07);
  expect(frequencies.window, 1, 0.7498942093324559);
  expect(frequencies.window, 31, 0.0001333521432163324);
}

struct Refusal {
  const char* from;
  const char* to;
  const char* message;
};

class Refused : public testing::TestWithParam<Refusal> {};

TEST_P(Refused, WithFieldValueAndNeed) {
  const Result<Config> config = read_changed(GetParam().from, GetParam().to);
  ASSERT_FALSE(config);
  EXPECT_THAT(config.error().message, HasSubstr(GetParam().message));
}

INSTANTIATE_TEST_SUITE_P(
    Configs, Refused,
    testing::Values(
        Refusal{"\"hidden_size\": 128", "\"hidden_size\": 100", "hidden_size is 100, needed a multiple of 32"},
        Refusal{"\"num_attention_heads\": 4", "\"num_attention_heads\": 3", "num_attention_heads is 3"},
        Refusal{"\"qk_rope_head_dim\": 16", "\"qk_rope_head_dim\": 96", "needed at most head_dim, which is 64"},
        Refusal{"\"qk_rope_head_dim\": 16", "\"qk_rope_head_dim\": 15", "qk_rope_head_dim is 15"},
        Refusal{"\"num_experts_per_tok\": 2", "\"num_experts_per_tok\": 9", "num_experts_per_tok is 9"},
        Refusal{"\"candidate_source_layer_id\": 4", "\"candidate_source_layer_id\": 5",
                "needed one of index_source_layer_ids"},
        Refusal{
            "\"candidate_source_layer_id\": 4", "\"candidate_source_layer_id\": 2",
            "candidate_source_layer_id is 2, needed one of index_source_layer_ids, not before the last kv source 4"},
        Refusal{"\"candidate_block_size\": 8", "\"candidate_block_size\": 4096", "from 1 to 1024"},
        Refusal{"\"candidate_topk_blocks\": 4", "\"candidate_topk_blocks\": 70000", "candidate_topk_blocks is 70000"},
        Refusal{"\"index_topk\": 16", "\"index_topk\": 70000", "index_topk is 70000"},
        Refusal{"\"sliding_window\": 16", "\"sliding_window\": 70000", "sliding_window is 70000"},
        Refusal{"\"index_source_layer_ids\": [\n   2,", "\"index_source_layer_ids\": [\n   3,",
                "index_source_layer_ids"},
        Refusal{"\"kv_source_layer_ids\": [\n   2,\n   4", "\"kv_source_layer_ids\": [\n   4,\n   2",
                "needed rising layers from 0 to 7"},
        Refusal{"\"kv_source_layer_ids\": [\n   2,\n   4", "\"kv_source_layer_ids\": [\n   2,\n   44",
                "needed rising layers from 0 to 7"},
        Refusal{"\"compress_ratios\": [\n   0,\n   0,\n   2,", "\"compress_ratios\": [\n   0,\n   0,\n   3,",
                "3 at layer 2, needed 0, 1 or 2"},
        Refusal{"\"compress_ratios\": [\n   0,\n   0,\n   2,\n   2,",
                "\"compress_ratios\": [\n   0,\n   0,\n   2,\n   1,", "1 at layer 3, needed 2, as its kv source 2 has"},
        Refusal{"\"scoring_func\": \"sqrtsoftplus\"", "\"scoring_func\": \"sigmoid\"", "scoring_func is 'sigmoid'"},
        Refusal{"\"num_hidden_layers\": 8", "\"num_hidden_layers\": 80", "needed one for each of the 80 layers"},
        Refusal{"\"dspark_target_layer_ids\": [\n   5,", "\"dspark_target_layer_ids\": [\n   3,",
                "behind the last kv source"},
        Refusal{"\"dspark_noise_token_id\": 1000", "\"dspark_noise_token_id\": 1024", "dspark_noise_token_id is 1024"},
        Refusal{"\"rms_norm_eps\": 1e-20", "\"rms_norm_eps\": \"tiny\"", "rms_norm_eps"},
        Refusal{"\"weight_block_size\": [\n   32,\n   32", "\"weight_block_size\": [\n   128,\n   128",
                "[128, 128], supported: [32, 32]"},
        Refusal{"\"engram_num_embeddings\": [\n   6660,\n", "\"engram_num_embeddings\": [\n", "engram_num_embeddings"},
        Refusal{"\"factor\": 16,", "\"factor\": 1e400,", "factor"}));

}  // namespace
}  // namespace thalweg::models::deepseek_v41
