// Checkpoints that are made here: complete, the same each time, and such that a model computes something with them.
#include "models/deepseek_v41/tiny.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/check.h"
#include "device/float_types.h"
#include "device/thread_pool.h"
#include "models/deepseek_v41/inventory.h"
#include "models/registry.h"
#include "models/sequence_batch.h"
#include "weights/checkpoint.h"
#include "weights/test_files.h"

namespace thalweg::models::deepseek_v41 {
namespace {

/// A checkpoint of the sizes, and with the token classes, of the golden one.
class Tiny {
 public:
  explicit Tiny(std::uint64_t seed) {
    std::filesystem::copy("tests/golden/deepseek_v41/micro/config.json", folder_.path());
    std::filesystem::copy("tests/golden/deepseek_v41/engram_token_map.i32", folder_.path());
    config_ = config_of_folder();
    const Status status = write_tiny_weights(config_, seed, folder_.path());
    if (!status) ADD_FAILURE() << status.error().message;
    Result<std::unique_ptr<weights::Checkpoint>> opened = weights::Checkpoint::open(folder_.path());
    if (!opened) ADD_FAILURE() << opened.error().message;
    CHECK(opened.has_value());
    checkpoint_ = std::move(*opened);
  }

  const Config& config() const { return config_; }
  const weights::Checkpoint& checkpoint() const { return *checkpoint_; }

  std::span<const std::byte> bytes(const std::string& name) const {
    const weights::TensorInfo* tensor = checkpoint_->find(name);
    CHECK(tensor != nullptr);
    return checkpoint_->bytes(*tensor);
  }

 private:
  /// While there are no weights yet.
  Config config_of_folder() const {
    const std::string no_weights =
        folder_.write("model.safetensors", weights::test_files::aligned_safetensors("{}", ""));
    const Result<std::unique_ptr<weights::Checkpoint>> checkpoint = weights::Checkpoint::open(folder_.path());
    CHECK(checkpoint.has_value());
    const Result<Config> config = read_config(**checkpoint);
    CHECK(config.has_value());
    std::filesystem::remove(no_weights);
    return *config;
  }

  weights::test_files::TemporaryFolder folder_;
  Config config_;
  std::unique_ptr<weights::Checkpoint> checkpoint_;
};

struct Moments {
  double mean = 0.0;
  double deviation = 0.0;
};

Moments moments(const std::vector<float>& values) {
  double sum = 0.0;
  double squares = 0.0;
  for (const float value : values) {
    sum += static_cast<double>(value);
    squares += static_cast<double>(value) * static_cast<double>(value);
  }
  const auto count = static_cast<double>(values.size());
  return {sum / count, std::sqrt(squares / count - sum / count * sum / count)};
}

TEST(Tiny, HoldsEveryTensorInSeveralFiles) {
  const Tiny tiny(1);
  std::map<std::string, std::int32_t> file_of;
  for (const weights::TensorInfo& tensor : tiny.checkpoint().tensors()) file_of[tensor.name] = tensor.file;
  std::size_t num_tensors = 0;
  for (const Parameter& parameter : inventory(tiny.config())) {
    for (const StoredTensor& wanted : stored_tensors(parameter)) {
      const weights::TensorInfo* found = tiny.checkpoint().find(wanted.name);
      ASSERT_NE(found, nullptr) << wanted.name;
      EXPECT_EQ(found->dtype, wanted.dtype) << wanted.name;
      EXPECT_EQ(found->shape, wanted.shape) << wanted.name;
      ++num_tensors;
    }
  }
  EXPECT_EQ(num_tensors, file_of.size());
  EXPECT_EQ(tiny.checkpoint().files().size(), 4U);
  EXPECT_NE(file_of["layers.3.engram.embed.weight"], file_of["layers.3.engram.wkv.weight"]);
  EXPECT_NE(file_of["mtp.1.attn.wkv.weight"], file_of["layers.1.attn.wkv.weight"]);
}

TEST(Tiny, DependsOnTheSeedAlone) {
  const Tiny first(1), again(1), other(2);
  for (const weights::TensorInfo& tensor : first.checkpoint().tensors()) {
    const std::span<const std::byte> bytes = first.bytes(tensor.name);
    ASSERT_TRUE(std::ranges::equal(bytes, again.bytes(tensor.name))) << tensor.name;
    const bool is_scale = tensor.dtype == device::DType::kF8E8M0;  // which may be equal
    ASSERT_TRUE(is_scale || !std::ranges::equal(bytes, other.bytes(tensor.name))) << tensor.name;
  }
}

TEST(Tiny, ValuesHaveTheSpreadTheyShould) {
  const Tiny tiny(3);
  const Config& config = tiny.config();
  const auto fan_in = [](std::int64_t num_inputs) { return 1.0 / std::sqrt(static_cast<double>(num_inputs)); };

  std::vector<float> values;
  const std::span<const std::byte> embedding = tiny.bytes("embed.weight");
  for (std::size_t i = 0; i < embedding.size(); i += 2) {
    std::uint16_t code = 0;
    std::memcpy(&code, embedding.data() + i, sizeof(code));
    values.push_back(device::float_from_bf16(code));
  }
  EXPECT_NEAR(moments(values).mean, 0.0, 0.02);
  EXPECT_NEAR(moments(values).deviation, 1.0, 0.02);

  values.clear();
  const std::span<const std::byte> codes = tiny.bytes("layers.5.attn.wq_b.weight");
  const std::span<const std::byte> scales = tiny.bytes("layers.5.attn.wq_b.scale");
  const auto num_cols = static_cast<std::size_t>(config.q_lora_rank);
  for (std::size_t i = 0; i < codes.size(); ++i) {
    const std::size_t tile = i / num_cols / 32 * (num_cols / 32) + i % num_cols / 32;
    values.push_back(device::float_from_f8_e4m3(std::to_integer<std::uint8_t>(codes[i])) *
                     device::float_from_f8_e8m0(std::to_integer<std::uint8_t>(scales[tile])));
  }
  EXPECT_NEAR(moments(values).deviation, 1.5 * fan_in(config.q_lora_rank), 0.03 * 1.5 * fan_in(config.q_lora_rank));

  values.clear();
  const std::span<const std::byte> pairs = tiny.bytes("layers.0.ffn.experts.3.w2.weight");
  const std::span<const std::byte> row_scales = tiny.bytes("layers.0.ffn.experts.3.w2.scale");
  for (std::size_t i = 0; i < 2 * pairs.size(); ++i) {
    const std::uint8_t code = std::to_integer<std::uint8_t>(pairs[i / 2]) >> (i % 2 * 4) & 15;
    values.push_back(device::float_from_f4_e2m1(code) *
                     device::float_from_f8_e8m0(std::to_integer<std::uint8_t>(row_scales[i / 32])));
  }
  const double wanted = 0.1 * fan_in(config.intermediate_size);
  EXPECT_NEAR(moments(values).deviation, wanted, 0.05 * wanted);
}

TEST(Tiny, IsAModelWhoseLogitsFollowThePrompt) {
  const Tiny tiny(1);
  device::ThreadPool threads(2);
  device::Stream stream{.cpu_level = device::detect_cpu_level(), .threads = &threads};
  const Result<std::unique_ptr<Model>> model = load_model(tiny.checkpoint(), stream, {.loads_draft_model = true});
  ASSERT_TRUE(model) << model.error().message;
  (*model)->reserve(64);
  const std::vector<std::int32_t> a{0, 10, 20, 30, 40}, b{0, 10, 21, 30, 40};
  const std::vector<float> first = SequenceBatch(**model, stream, 1, 64).step({a}, false);
  const std::vector<float> second = SequenceBatch(**model, stream, 1, 64).step({b}, false);
  const Moments spread = moments(first);
  EXPECT_GT(spread.deviation, 0.5);
  EXPECT_LT(spread.deviation, 4.0);
  double largest = 0.0;
  for (std::size_t i = 0; i < first.size(); ++i) {
    largest = std::max(largest, std::abs(static_cast<double>(first[i]) - static_cast<double>(second[i])));
  }
  EXPECT_GT(largest, 1e-3) << "an earlier token has no influence";
}

TEST(Tiny, FailsWhereItCannotWrite) {
  const Tiny tiny(1);
  const Status status = write_tiny_weights(tiny.config(), 1, "/no/such/folder");
  ASSERT_FALSE(status);
  EXPECT_NE(status.error().message.find("/no/such/folder"), std::string::npos) << status.error().message;
}

}  // namespace
}  // namespace thalweg::models::deepseek_v41
