// Checkpoints that must be refused, and what the message says.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "device/thread_pool.h"
#include "layers/weight_reader.h"
#include "models/registry.h"
#include "models/tensor_names.h"
#include "weights/test_files.h"

namespace thalweg::models {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kFolder = "tests/golden/models/";

std::string read_text(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

/// A golden checkpoint whose config.json is changed in one place.
class ChangedCheckpoint {
 public:
  ChangedCheckpoint(const std::string& name, const std::string& from, const std::string& to) {
    const std::string source = kFolder + name;
    std::string config = read_text(source + "/config.json");
    const std::size_t place = config.find(from);
    EXPECT_NE(place, std::string::npos) << from;
    config.replace(place, from.size(), to);
    folder_.write("config.json", config);
    std::filesystem::copy(source + "/model.safetensors", folder_.path() + "/model.safetensors");
  }
  std::string path() const { return folder_.path(); }

 private:
  weights::test_files::TemporaryFolder folder_;
};

class Loading : public ::testing::Test {
 protected:
  Result<std::unique_ptr<Model>> load(const std::string& path, const LoadOptions& options = {}) {
    auto checkpoint = weights::Checkpoint::open(path);
    if (!checkpoint) return std::unexpected(checkpoint.error());
    return load_model(**checkpoint, stream_, options);
  }
  Error error_of(const std::string& path, const LoadOptions& options = {}) {
    auto model = load(path, options);
    EXPECT_FALSE(model) << path << " was accepted";
    return model ? Error{} : model.error();
  }
  std::string message_after(const std::string& name, const std::string& from, const std::string& to) {
    return error_of(ChangedCheckpoint(name, from, to).path()).message;
  }

  device::ThreadPool threads_{1, false};
  device::Stream stream_{.cpu_level = device::detect_cpu_level(), .threads = &threads_};
};

TEST_F(Loading, DescribesTheModel) {
  auto model = load(std::string(kFolder) + "llama");
  ASSERT_TRUE(model) << model.error().message;
  const ModelInfo& info = (*model)->info();
  EXPECT_EQ(info.architecture, "llama");
  EXPECT_EQ(info.vocab_size, 64);
  EXPECT_EQ(info.max_position, 256);
  EXPECT_EQ(info.num_layers, 2);
  EXPECT_EQ(info.hidden_size, 32);
  // Embedding and final norm; per layer two norms, q, k, v, o and the feed-forward part.
  EXPECT_EQ(info.num_parameters, 64 * 32 + 32 + 2 * (2 * 32 + 32 * (64 + 32 + 32 + 64) + 3 * 32 * 64));
  EXPECT_EQ(info.cache.block_size, 16);
  EXPECT_EQ(info.cache.bytes_per_block, 2 * 16 * (2 * 2 * 16) * 2);  // layers, tokens, keys and values, fp16
}

TEST_F(Loading, ReportsProgressUpToTheEnd) {
  std::vector<double> seen;
  ASSERT_TRUE(load(std::string(kFolder) + "llama", {.progress = [&](double share) { seen.push_back(share); }}));
  EXPECT_TRUE(std::ranges::is_sorted(seen));
  EXPECT_EQ(seen.back(), 1.0);
}

TEST_F(Loading, NamesTheArchitecturesThatItKnows) {
  const ChangedCheckpoint changed("llama", "LlamaForCausalLM", "PerceiverForCausalLM");
  const Error error = error_of(changed.path());
  EXPECT_EQ(error.code, ErrorCode::kUnimplemented);
  EXPECT_THAT(error.message, AllOf(HasSubstr("'PerceiverForCausalLM'"), HasSubstr("LlamaForCausalLM"),
                                   HasSubstr("qwen3moe"), HasSubstr("gemma3")));
}

TEST_F(Loading, NamesTheFieldTheValueAndTheNeed) {
  const std::vector<std::array<std::string, 3>> cases = {
      {"\"hidden_size\": 32", "\"hidden_size\": 0", "hidden_size is 0, needed a whole number from 1 to 65536"},
      {"\"hidden_size\": 32", "\"hidden_size\": -32", "hidden_size is -32, needed"},
      {"\"hidden_size\": 32", "\"hidden_size\": 9000000000", "hidden_size is 9000000000, needed"},
      {"\"hidden_size\": 32", "\"hidden_size\": null", "hidden_size is absent, needed"},
      {"\"num_hidden_layers\": 2", "\"num_hidden_layers\": 1000000", "num_hidden_layers is 1000000, needed"},
      {"\"num_attention_heads\": 4", "\"num_attention_heads\": 3", "is 3, needed a multiple of the key-value heads, 2"},
      {"\"head_dim\": 16", "\"head_dim\": 12", "head size is 12, supported: multiples of 8"},
      {"\"rms_norm_eps\": 1e-06", "\"rms_norm_eps\": -1", "rms_norm_eps is -1, needed a number from 0 to 1"},
      {"\"rope_theta\": 10000.0", "\"rope_theta\": 0.0", "rope_parameters.rope_theta is 0, needed"},
      {"\"rope_type\": \"default\"", "\"rope_type\": \"spiral\"",
       "rope_parameters.rope_type is 'spiral', supported: default, linear, dynamic, llama3, yarn"},
      {"\"rope_type\": \"default\"", "\"partial_rotary_factor\": 0.5", "partial_rotary_factor is 0.5, supported: 1"},
      {"\"hidden_act\": \"silu\"", "\"hidden_act\": \"relu\"", "hidden_act is 'relu', supported: silu"},
  };
  for (const auto& [from, to, message] : cases) EXPECT_THAT(message_after("llama", from, to), HasSubstr(message)) << to;
}

TEST_F(Loading, RefusesWrongTypes) {
  EXPECT_THAT(message_after("llama", "\"hidden_size\": 32", "\"hidden_size\": \"big\""), HasSubstr("hidden_size"));
  EXPECT_THAT(message_after("llama", "\"hidden_size\": 32", "\"hidden_size\": 32.5"), HasSubstr("hidden_size"));
  EXPECT_THAT(message_after("llama", "\"tie_word_embeddings\": true", "\"tie_word_embeddings\": 7"),
              HasSubstr("tie_word_embeddings"));
}

TEST_F(Loading, RefusesWhatWouldComputeSomethingElse) {
  EXPECT_THAT(message_after("gemma3", "\"attn_logit_softcapping\": null", "\"attn_logit_softcapping\": 50.0"),
              HasSubstr("attn_logit_softcapping is 50, supported: none"));
  EXPECT_THAT(
      message_after("gemma3", "\"use_bidirectional_attention\": false", "\"use_bidirectional_attention\": true"),
      HasSubstr("use_bidirectional_attention is true"));
  EXPECT_THAT(message_after("gemma3", "\"full_attention\",\n  \"sliding_attention\"", "\"sliding_attention\""),
              HasSubstr("layer_types is a list of 3, needed one per layer, 4"));
  EXPECT_THAT(message_after("qwen3_moe_mixed", "\"num_experts_per_tok\": 2", "\"num_experts_per_tok\": 9"),
              HasSubstr("experts used per token is 9, needed at most the number of experts, 8"));
  EXPECT_THAT(message_after("qwen3_moe_mixed", "\"mlp_only_layers\": [\n  0", "\"mlp_only_layers\": [\n  5"),
              HasSubstr("mlp_only_layers is 5, needed layers from 0 to 1"));
  EXPECT_THAT(message_after("qwen3_block_fp8", "\"quant_method\": \"fp8\"", "\"quant_method\": \"awq\""),
              HasSubstr("'awq'"));
  EXPECT_THAT(message_after("llama_llama3", "\"high_freq_factor\": 4.0", "\"high_freq_factor\": 0.5"),
              HasSubstr("high_freq_factor is 0.5, needed above low_freq_factor 1"));
}

TEST_F(Loading, RefusesWhatDeepseekModelsDoNotMean) {
  const std::vector<std::array<std::string, 4>> cases = {
      {"deepseek_v3", "\"kv_lora_rank\": 24", "\"kv_lora_rank\": 0", "kv_lora_rank is 0, needed a whole number from 1"},
      {"deepseek_v3", "\"qk_rope_head_dim\": 8", "\"qk_rope_head_dim\": 7", "is 7, needed an even number"},
      {"deepseek_v3", "\"n_group\": 4", "\"n_group\": 5", "n_group is 5, needed a number that divides the 12 experts"},
      {"deepseek_v3", "\"topk_group\": 2", "\"topk_group\": 9", "topk_group is 9, needed at most n_group, 4"},
      {"deepseek_v3", "\"num_experts_per_tok\": 3", "\"num_experts_per_tok\": 7",
       "num_experts_per_tok is 7, needed at most the 6 experts of topk_group groups"},
      {"deepseek_v3", "\"sigmoid\"", "\"softmax\"", "scoring_func is 'softmax', supported: sigmoid"},
      {"deepseek_v3", "\"noaux_tc\"", "\"greedy\"", "topk_method is 'greedy', supported: noaux_tc"},
      {"deepseek_v3", "\"attention_bias\": false", "\"attention_bias\": true",
       "attention_bias is true, supported: false"},
      {"deepseek_v32", "\"index_head_dim\": 16", "\"index_head_dim\": 4",
       "index_head_dim is 4, needed at least qk_rope_head_dim, 8"},
      {"deepseek_v32", "\"index_topk\": 12", "\"index_topk\": null", "index_topk is absent, needed"},
      {"deepseek_v32", "\"q_lora_rank\": 24", "\"q_lora_rank\": null", "q_lora_rank is absent, needed a rank"},
      {"deepseek_v4", "[\n  0,\n  4", "[\n  0,\n  5", "compress_ratios is 5, supported: 0, 4, 128"},
      {"deepseek_v4", "\"num_hidden_layers\": 4", "\"num_hidden_layers\": 6",
       "compress_ratios is a list of 5, needed one per layer, 6"},
      {"deepseek_v4", "\"num_key_value_heads\": 1", "\"num_key_value_heads\": 2",
       "num_key_value_heads is 2, supported: 1"},
      {"deepseek_v4", "\"o_groups\": 2", "\"o_groups\": 3", "o_groups is 3, needed a divisor of the 4 heads"},
      {"deepseek_v4", "\"qk_rope_head_dim\": 8", "\"qk_rope_head_dim\": 34",
       "is 34, needed an even number up to head_dim"},
      {"deepseek_v4", "\"sqrtsoftplus\"", "\"sigmoid\"", "scoring_func is 'sigmoid', supported: sqrtsoftplus"},
      {"deepseek_v4", "\"sliding_window\": 12", "\"sliding_window\": 70000",
       "is 70000, needed a whole number from 1 to"},
      {"deepseek_v32", "\"index_topk\": 12", "\"index_topk\": 70000", "is 70000, needed a whole number from 1 to"},
      {"deepseek_v4", "\"swiglu_limit\": 1.5", "\"swiglu_limit\": 0.0", "swiglu_limit is 0, needed a number from"},
      {"deepseek_v4", "\"n_routed_experts\": 8", "\"n_routed_experts\": 1", "is 2, needed at most n_routed_experts, 1"},
      {"deepseek_v4", "\"num_hash_layers\": 2", "\"num_hash_layers\": 3", "'layers.2.ffn.gate.tid2eid' of shape"},
  };
  for (const auto& [name, from, to, message] : cases) {
    EXPECT_THAT(message_after(name, from, to), HasSubstr(message)) << to;
  }
}

TEST_F(Loading, RefusesTokenTablesThatNameNoExpert) {
  for (const std::int64_t expert : {std::int64_t{8}, std::int64_t{-1}, std::int64_t{1} << 32}) {
    const ChangedCheckpoint changed("deepseek_v4", "\"vocab_size\"", "\"vocab_size\"");
    const auto checkpoint = weights::Checkpoint::open(changed.path());
    ASSERT_TRUE(checkpoint) << checkpoint.error().message;
    const weights::TensorInfo* table = (*checkpoint)->find("layers.1.ffn.gate.tid2eid");
    ASSERT_NE(table, nullptr);
    std::fstream file(changed.path() + "/model.safetensors", std::ios::binary | std::ios::in | std::ios::out);
    file.seekp(static_cast<std::streamoff>(table->offset + 2 * 5 * sizeof(expert)));
    file.write(reinterpret_cast<const char*>(&expert), sizeof(expert));
    file.close();
    EXPECT_THAT(
        error_of(changed.path()).message,
        HasSubstr("'layers.1.ffn.gate.tid2eid' sends token 5 to an expert that is not there, needed numbers from "
                  "0 to 7"))
        << expert;
  }
}

TEST_F(Loading, NamesAllMissingTensorsUpToALimit) {
  const std::string message = message_after("llama", "\"num_hidden_layers\": 2", "\"num_hidden_layers\": 3");
  EXPECT_THAT(message, AllOf(HasSubstr("'model.layers.2.input_layernorm.weight' of shape [32] is missing"),
                             HasSubstr("'model.layers.2.self_attn.q_proj.weight' of shape [64, 32] is missing"),
                             HasSubstr("; and 1 more")));
}

TEST_F(Loading, NamesMisshapenTensorsWithBothShapes) {
  EXPECT_THAT(message_after("llama", "\"intermediate_size\": 64", "\"intermediate_size\": 48"),
              HasSubstr("'model.layers.0.mlp.gate_proj.weight' has shape [64, 32], needed [48, 32]"));
  EXPECT_THAT(message_after("llama", "\"tie_word_embeddings\": true", "\"tie_word_embeddings\": false"),
              HasSubstr("'lm_head.weight' of shape [64, 32] is missing"));
}

TEST_F(Loading, ListsTensorsThatNobodyAskedFor) {
  auto checkpoint = weights::Checkpoint::open(std::string(kFolder) + "gemma3_wrapped");
  ASSERT_TRUE(checkpoint) << checkpoint.error().message;
  layers::WeightReader reader(**checkpoint, stream_, {});
  const TensorNames names(**checkpoint);
  reader.linear(names.embedding(), 64, 32);
  EXPECT_THAT(reader.unused(), Contains("multi_modal_projector.mm_soft_emb_norm.weight"));
  EXPECT_THAT(reader.unused(), Not(Contains("language_model.model.embed_tokens.weight")));
  EXPECT_TRUE(reader.status());
}

/// A GGUF file without tensors, enough for whatever is refused before they are looked for.
weights::test_files::Gguf llama_gguf() {
  weights::test_files::Gguf file;
  file.add_string("general.architecture", "llama")
      .add_u32("llama.embedding_length", 32)
      .add_u32("llama.feed_forward_length", 64)
      .add_u32("llama.block_count", 1)
      .add_u32("llama.attention.head_count", 4)
      .add_u32("llama.context_length", 256)
      .add_f32("llama.attention.layer_norm_rms_epsilon", 1e-5F);
  return file;
}

TEST_F(Loading, ChecksGgufMetadataToo) {
  const weights::test_files::TemporaryFolder folder;
  const auto message_of = [&](const weights::test_files::Gguf& file) {
    return error_of(folder.write("model.gguf", file.build())).message;
  };
  EXPECT_THAT(message_of(llama_gguf()), HasSubstr("'token_embd.weight' of shape [1, 32] is missing"));
  EXPECT_THAT(message_of(llama_gguf().add_u32("llama.expert_count", 8)), HasSubstr("llama.expert_count is 8"));
  EXPECT_THAT(message_of(llama_gguf().add_u32("llama.rope.dimension_count", 4)),
              HasSubstr("llama.rope.dimension_count is 4, supported: the head size, 8"));
  EXPECT_THAT(message_of(llama_gguf().add_u32("llama.attention.head_count_kv", 3)),
              HasSubstr("needed a multiple of the key-value heads, 3"));
  EXPECT_THAT(message_of(llama_gguf().add_string("llama.rope.scaling.type", "longrope")),
              HasSubstr("llama.rope.scaling.type is 'longrope', supported: none, linear, yarn"));
  EXPECT_THAT(message_of(llama_gguf().add_f32("llama.rope.freq_base", std::nanf(""))),
              AllOf(HasSubstr("llama.rope.freq_base"), HasSubstr("nan")));
  weights::test_files::Gguf empty;
  empty.add_string("general.architecture", "llama");
  EXPECT_THAT(message_of(empty), HasSubstr("llama.embedding_length is absent, needed a whole number"));
}

TEST_F(Loading, RefusesCacheTypesAndBlockSizesOutOfRange) {
  const std::string path = std::string(kFolder) + "llama";
  EXPECT_EQ(error_of(path, {.kv_dtype = device::DType::kI8}).param, "kv_dtype");
  EXPECT_EQ(error_of(path, {.block_size = 0}).param, "block_size");
  EXPECT_EQ(error_of(path, {.block_size = 1 << 20}).param, "block_size");
}

}  // namespace
}  // namespace thalweg::models
