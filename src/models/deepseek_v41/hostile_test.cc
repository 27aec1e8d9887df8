// Checkpoints that are damaged: numbers that are none, tensors that are missing, of another shape or of another type.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "device/thread_pool.h"
#include "models/deepseek_v41/golden_files.h"
#include "models/registry.h"
#include "models/sequence_batch.h"
#include "weights/checkpoint.h"
#include "weights/safetensors.h"
#include "weights/test_files.h"

namespace thalweg::models::deepseek_v41 {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string read_file(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

class Damaged : public testing::Test {
 protected:
  void SetUp() override {
    if (!has_golden_files()) GTEST_SKIP() << "THALWEG_TEST_ASSETS is not set";
    tensors_ = read_file(golden_folder("micro") + "/model.safetensors");
    for (const char* file : {"config.json", "engram_token_map.i32"}) {
      folder_.write(file, read_file(golden_folder("micro") + "/" + file));
    }
  }

  /// The stored bytes of a tensor, to be overwritten.
  std::span<char> bytes_of(const std::string& name) {
    const std::span<const std::byte> all = std::as_bytes(std::span(tensors_));
    const Result<weights::SafetensorsFile> file = weights::parse_safetensors(all, "micro");
    for (const weights::TensorInfo& tensor : file->tensors) {
      if (tensor.name == name) return std::span(tensors_).subspan(tensor.offset, tensor.num_bytes);
    }
    ADD_FAILURE() << name << " is not in the file";
    return {};
  }

  /// Renames or retypes in the header, which keeps its length.
  void replace_in_header(const std::string& from, const std::string& to) {
    ASSERT_EQ(from.size(), to.size());
    const std::size_t place = tensors_.find(from);
    ASSERT_NE(place, std::string::npos) << from;
    tensors_.replace(place, from.size(), to);
  }

  Result<std::unique_ptr<Model>> load() {
    folder_.write("model.safetensors", tensors_);
    Result<std::unique_ptr<weights::Checkpoint>> checkpoint = weights::Checkpoint::open(folder_.path());
    if (!checkpoint) return std::unexpected(checkpoint.error());
    return load_model(**checkpoint, stream_, {.prefill_tail_tokens = 0});
  }

  std::string refusal() {
    const Result<std::unique_ptr<Model>> model = load();
    return model ? "" : model.error().message;
  }

  device::ThreadPool threads_{2};
  device::Stream stream_{.cpu_level = device::detect_cpu_level(), .threads = &threads_};
  weights::test_files::TemporaryFolder folder_;
  std::string tensors_;
};

void fill_nan_bf16(std::span<char> bytes) {
  for (std::size_t i = 0; i + 1 < bytes.size(); i += 2) {
    bytes[i] = '\xc0';
    bytes[i + 1] = '\x7f';
  }
}

/// A token whose embedding is not a number spoils its own sequence; lists stay inside what is visible.
TEST_F(Damaged, NotANumberStaysInItsSequence) {
  constexpr std::int32_t kBadToken = 77;
  const std::size_t row_bytes = bytes_of("embed.weight").size() / 1024;
  fill_nan_bf16(bytes_of("embed.weight").subspan(kBadToken * row_bytes, row_bytes));
  Result<std::unique_ptr<Model>> model = load();
  ASSERT_TRUE(model) << model.error().message;
  (*model)->reserve(256);

  std::vector<std::int32_t> good(60), bad(60);
  for (std::size_t i = 0; i < good.size(); ++i) good[i] = bad[i] = 100 + static_cast<std::int32_t>(i * 13 % 800);
  bad[40] = kBadToken;
  const std::vector<float> alone = SequenceBatch(**model, stream_, 1, 64).step({good}, false);

  bool looked = false;
  (*model)->set_tap([&](std::string_view name, std::int64_t rows, std::int64_t cols, const float* data) {
    if (!name.ends_with("topk")) return;
    looked = true;
    const std::int32_t ratio = name.starts_with("layers.2") ? 2 : 1;
    for (std::int64_t row = 0; row < rows; ++row) {
      const std::int64_t num_visible = (row % 60 + 1) / ratio;
      for (std::int64_t i = 0; i < cols; ++i) {
        const float entry = data[row * cols + i];
        ASSERT_TRUE(entry >= -1.0F && entry < static_cast<float>(num_visible)) << name << " row " << row;
      }
    }
  });
  const std::vector<float> both = SequenceBatch(**model, stream_, 2, 64).step({bad, good}, false);
  EXPECT_TRUE(looked);
  EXPECT_TRUE(std::isnan(both[0]));
  EXPECT_EQ(std::memcmp(both.data() + 1024, alone.data(), 1024 * sizeof(float)), 0);
}

TEST_F(Damaged, WeightsThatAreNotNumbersEndInLogitsThatAreNone) {
  for (const char* name : {"layers.2.attn.indexer.weights_proj.weight", "layers.4.ffn.gate.weight",
                           "layers.2.attn.compressor.wkv.weight", "layers.1.engram.q_weight"}) {
    tensors_ = read_file(golden_folder("micro") + "/model.safetensors");
    fill_nan_bf16(bytes_of(name));
    Result<std::unique_ptr<Model>> model = load();
    ASSERT_TRUE(model) << name << ": " << model.error().message;
    (*model)->reserve(64);
    std::vector<std::int32_t> ids(50, 9);
    const std::vector<float> logits = SequenceBatch(**model, stream_, 1, 64).step({ids}, false);
    EXPECT_EQ(logits.size(), 1024U) << name;
  }
}

TEST_F(Damaged, MissingTensorsAreNamed) {
  replace_in_header("layers.2.attn.compressor.wgate.weight", "layers.2.attn.compressor.wgatf.weight");
  replace_in_header("layers.7.ffn.experts.3.w2.scale", "layers.7.ffn.experts.3.w2.scald");
  EXPECT_THAT(refusal(), AllOf(HasSubstr("layers.2.attn.compressor.wgate.weight"), HasSubstr("is missing"),
                               HasSubstr("layers.7.ffn.experts.3.w2")));
}

TEST_F(Damaged, AnotherConfigurationIsSeenByTheShapes) {
  std::string config = read_file(golden_folder("micro") + "/config.json");
  const std::string from = "\"q_lora_rank\": 64";
  config.replace(config.find(from), from.size(), "\"q_lora_rank\": 96");
  folder_.write("config.json", config);
  EXPECT_THAT(refusal(), AllOf(HasSubstr("layers.0.attn.wq_a.weight"), HasSubstr("[64, 128]"), HasSubstr("[96, 128]")));
}

TEST_F(Damaged, TablesMustFitTheTokenizer) {
  std::string classes = read_file(golden_folder("micro") + "/engram_token_map.i32");
  classes[4 * 1000] = '\xff';
  classes[4 * 1000 + 1] = '\xff';
  folder_.write("engram_token_map.i32", classes);
  EXPECT_THAT(refusal(), HasSubstr("engram_compressed_vocab_size is 854"));
  folder_.write("engram_token_map.i32", classes.substr(0, 400));
  EXPECT_THAT(refusal(), AllOf(HasSubstr("100 token ids"), HasSubstr("vocab_size, which is 1024")));
  std::filesystem::remove(folder_.path() + "/engram_token_map.i32");
  EXPECT_THAT(refusal(), HasSubstr("engram_token_map.i32"));
}

TEST_F(Damaged, OptionsMustFitTheModel) {
  folder_.write("model.safetensors", tensors_);
  Result<std::unique_ptr<weights::Checkpoint>> checkpoint = weights::Checkpoint::open(folder_.path());
  ASSERT_TRUE(checkpoint);
  const auto refusal_of = [&](const LoadOptions& options) {
    const Result<std::unique_ptr<Model>> model = load_model(**checkpoint, stream_, options);
    return model ? std::string() : model.error().message;
  };
  EXPECT_THAT(refusal_of({.block_size = 17}), HasSubstr("block_size is 17"));
  EXPECT_THAT(refusal_of({.prefill_tail_tokens = 5}), HasSubstr("shorter than the window of 16"));
  EXPECT_EQ(refusal_of({.prefill_tail_tokens = 18}), "");
}

}  // namespace
}  // namespace thalweg::models::deepseek_v41
