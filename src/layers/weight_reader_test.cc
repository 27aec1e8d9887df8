#include "layers/weight_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <numeric>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "device/float_types.h"
#include "device/thread_pool.h"
#include "weights/deepseek_names.h"
#include "weights/safetensors_writer.h"
#include "weights/test_files.h"

namespace thalweg::layers {
namespace {

using device::DType;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

constexpr const char* kConfig = R"({"architectures":["X"],"quantization_config":{"quant_method":"fp8",
  "weight_block_size":[32,32],"scale_fmt":"ue8m0","expert_dtype":"fp4"}})";

/// A checkpoint that writes down whose bytes are asked for.
class WatchedCheckpoint final : public weights::Checkpoint {
 public:
  explicit WatchedCheckpoint(std::unique_ptr<Checkpoint> inner) : inner_(std::move(inner)) {}

  weights::CheckpointKind kind() const override { return inner_->kind(); }
  const std::string& path() const override { return inner_->path(); }
  const std::string& architecture() const override { return inner_->architecture(); }
  const weights::Metadata& metadata() const override { return inner_->metadata(); }
  const std::vector<weights::TensorInfo>& tensors() const override { return inner_->tensors(); }
  const weights::TensorInfo* find(std::string_view name) const override {
    touched_.emplace(name);
    return inner_->find(name);
  }
  std::span<const std::byte> bytes(const weights::TensorInfo& tensor) const override {
    touched_.insert(tensor.name);
    return inner_->bytes(tensor);
  }
  void release(const weights::TensorInfo& tensor) const override {
    touched_.insert(tensor.name);
    inner_->release(tensor);
  }
  std::vector<std::string> files() const override { return inner_->files(); }
  std::shared_ptr<const void> hold() const override { return inner_->hold(); }

  const std::set<std::string>& touched() const { return touched_; }

 private:
  std::unique_ptr<Checkpoint> inner_;
  mutable std::set<std::string> touched_;  // names, looked for or read
};

class Reading : public ::testing::Test {
 protected:
  /// Bytes count up from `seed`, so that every tensor has its own.
  void add(const std::string& name, DType dtype, const std::vector<std::int64_t>& shape, int seed = 0) {
    std::int64_t num_bytes = device::block_layout(dtype).num_bytes;
    for (const std::int64_t dimension : shape) num_bytes *= dimension;
    std::string bytes(static_cast<std::size_t>(num_bytes), '\0');
    for (std::size_t i = 0; i < bytes.size(); ++i) {
      bytes[i] = static_cast<char>((static_cast<std::size_t>(seed) + i) % 0x70);
    }
    if (dtype == DType::kF8E8M0)
      std::ranges::for_each(bytes, [](char& byte) { byte = static_cast<char>(byte % 8 + 120); });
    tensors_.push_back({name, dtype, shape});
    data_.push_back(bytes);
  }

  /// A matrix of floats 0, 1, 2, ...
  void add_counting(const std::string& name, const std::vector<std::int64_t>& shape) {
    add(name, DType::kF32, shape);
    std::vector<float> values(data_.back().size() / sizeof(float));
    std::iota(values.begin(), values.end(), 0.0F);
    std::memcpy(data_.back().data(), values.data(), data_.back().size());
  }

  void open(WeightReader::CanonicalName canonical_name = nullptr) {
    std::vector<std::size_t> order(tensors_.size());  // wide types first
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::ranges::stable_sort(order, std::greater(),
                             [this](std::size_t i) { return device::block_layout(tensors_[i].dtype).num_bytes; });
    std::vector<weights::SafetensorsWriter::Tensor> sorted;
    for (const std::size_t i : order) sorted.push_back(tensors_[i]);
    auto writer = weights::SafetensorsWriter::create(folder_.path() + "/model.safetensors", sorted);
    ASSERT_TRUE(writer) << writer.error().message;
    for (const std::size_t i : order) ASSERT_TRUE(writer->append(std::as_bytes(std::span(data_[i]))));
    ASSERT_TRUE(writer->finish());
    folder_.write("config.json", kConfig);
    auto checkpoint = weights::Checkpoint::open(folder_.path());
    ASSERT_TRUE(checkpoint) << checkpoint.error().message;
    checkpoint_ = std::make_unique<WatchedCheckpoint>(std::move(*checkpoint));
    reader_ = std::make_unique<WeightReader>(*checkpoint_, stream_, nullptr, canonical_name);
  }

  std::uint8_t byte(const std::string& name, std::int64_t index) const {
    const auto place = std::ranges::find(tensors_, name, &weights::SafetensorsWriter::Tensor::name);
    return static_cast<std::uint8_t>(
        data_[static_cast<std::size_t>(place - tensors_.begin())][static_cast<std::size_t>(index)]);
  }
  /// Element of a matrix of FP8 with blocks of 32 x 32, from its bytes in the file.
  float fp8(const std::string& weight, const std::string& scale, std::int64_t num_cols, std::int64_t row,
            std::int64_t col) const {
    return std::ldexp(device::float_from_f8_e4m3(byte(weight, row * num_cols + col)),
                      byte(scale, row / 32 * ((num_cols + 31) / 32) + col / 32) - 127);
  }
  float fp4(const std::string& name, std::int64_t num_cols, std::int64_t row, std::int64_t col) const {
    const std::uint8_t pair = byte(name + ".weight", (row * num_cols + col) / 2);
    return std::ldexp(device::float_from_f4_e2m1(col % 2 == 0 ? pair & 15 : pair >> 4),
                      byte(name + ".scale", row * ((num_cols + 31) / 32) + col / 32) - 127);
  }

  static std::vector<float> row_of(const kernels::LinearWeight& weight, std::int64_t row) {
    std::vector<float> values(static_cast<std::size_t>(weight.num_cols()));
    weight.read_row(row, values.data());
    return values;
  }

  std::string problem() const {
    const Status status = reader_->status();
    return status ? "" : status.error().message;
  }

  weights::test_files::TemporaryFolder folder_;
  std::vector<weights::SafetensorsWriter::Tensor> tensors_;
  std::vector<std::string> data_;
  std::unique_ptr<WatchedCheckpoint> checkpoint_;
  std::unique_ptr<WeightReader> reader_;
  device::ThreadPool threads_{1, false};
  device::Stream stream_{.threads = &threads_};
};

TEST_F(Reading, MatricesWithScales) {
  add("a.weight", DType::kF8E4M3, {40, 70}, 3);
  add("a.scale", DType::kF8E8M0, {2, 3}, 1);
  add("b.weight", DType::kF8E4M3, {40, 70}, 5);
  add("b.weight_scale_inv", DType::kF8E8M0, {2, 3}, 2);
  add("c.weight", DType::kI8, {3, 35}, 7);
  add("c.scale", DType::kF8E8M0, {3, 3}, 3);
  open();
  const kernels::LinearWeight a = reader_->linear("a", 40, 70);
  const kernels::LinearWeight b = reader_->linear("b", 40, 70);
  const kernels::LinearWeight c = reader_->linear("c", 3, 70);
  ASSERT_EQ(problem(), "");
  for (std::int64_t row = 0; row < 40; ++row) {
    const std::vector<float> row_a = row_of(a, row);
    const std::vector<float> row_b = row_of(b, row);
    for (std::int64_t col = 0; col < 70; ++col) {
      ASSERT_EQ(row_a[static_cast<std::size_t>(col)], fp8("a.weight", "a.scale", 70, row, col));
      ASSERT_EQ(row_b[static_cast<std::size_t>(col)], fp8("b.weight", "b.weight_scale_inv", 70, row, col));
    }
  }
  for (std::int64_t row = 0; row < 3; ++row) {
    const std::vector<float> values = row_of(c, row);
    for (std::int64_t col = 0; col < 70; ++col) {
      ASSERT_EQ(values[static_cast<std::size_t>(col)], fp4("c", 70, row, col));
    }
  }
  EXPECT_EQ(reader_->num_parameters(), 2 * 40 * 70 + 3 * 70);
  EXPECT_THAT(reader_->unused(), IsEmpty());
}

TEST_F(Reading, FloatsOfAnyRank) {
  add_counting("one", {3});
  add_counting("three", {2, 2, 2});
  add_counting("scalar", {});
  add("scaled.weight", DType::kF8E4M3, {33, 2}, 9);
  add("scaled.scale", DType::kF8E8M0, {2, 1});
  add("numbers", DType::kI32, {2});
  open();
  EXPECT_THAT(reader_->floats("one", {3}), ElementsAre(0, 1, 2));
  EXPECT_THAT(reader_->vector("one", 3), ElementsAre(0, 1, 2));
  EXPECT_THAT(reader_->floats("three", {2, 2, 2}), ElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
  EXPECT_THAT(reader_->floats("scalar", {}), ElementsAre(0));
  const std::vector<float> scaled = reader_->floats("scaled.weight", {33, 2});
  ASSERT_EQ(problem(), "");
  EXPECT_EQ(scaled[65], fp8("scaled.weight", "scaled.scale", 2, 32, 1));
  EXPECT_EQ(reader_->packed_bytes(), (3 + 3 + 8 + 1 + 66) * 4);
  EXPECT_THAT(reader_->floats("numbers", {2}), IsEmpty());
  EXPECT_THAT(problem(), HasSubstr("'numbers' has type I32, needed f32"));
}

TEST_F(Reading, IntegersWithinALimit) {
  add("narrow", DType::kI32, {2, 1});
  data_.back() = std::string("\5\0\0\0\0\0\0\0", 8);
  add("wide", DType::kI64, {2});
  data_.back() = std::string("\1\0\0\0\0\0\0\0\5\0\0\0\0\0\0\0", 16);
  add("huge", DType::kI64, {1});
  data_.back() = std::string("\1\0\0\0\1\0\0\0", 8);  // 1 in its low half
  open();
  EXPECT_THAT(reader_->integers("narrow", {2, 1}, 6), ElementsAre(5, 0));
  EXPECT_THAT(reader_->integers("wide", {2}, 6), ElementsAre(1, 5));
  ASSERT_EQ(problem(), "");
  EXPECT_THAT(reader_->integers("wide", {2}, 5), IsEmpty());
  EXPECT_THAT(reader_->integers("huge", {1}, 6), IsEmpty());
  EXPECT_THAT(problem(), AllOf(HasSubstr("'wide' holds 5 at [1], needed numbers from 0 to 4"),
                               HasSubstr("'huge' holds 4294967297 at [0]")));
}

TEST_F(Reading, MappedTablesStayInTheFile) {
  add("table.weight", DType::kF8E4M3, {5, 32}, 1);
  add("table.scale", DType::kF8E8M0, {5, 1}, 2);
  open();
  const std::span<const std::byte> codes = reader_->mapped("table.weight", DType::kF8E4M3, {5, 32});
  const std::span<const std::byte> scales = reader_->mapped("table.scale", DType::kF8E8M0, {5, 1});
  ASSERT_EQ(problem(), "");
  EXPECT_EQ(codes.data(), checkpoint_->bytes(*checkpoint_->find("table.weight")).data());
  EXPECT_EQ(codes.size(), 160U);
  EXPECT_EQ(std::to_integer<int>(scales[4]), byte("table.scale", 4));
  EXPECT_EQ(reader_->num_parameters(), 160);
  EXPECT_EQ(reader_->packed_bytes(), 0);
  EXPECT_THAT(reader_->mapped("table.weight", DType::kI8, {5, 32}), IsEmpty());
  EXPECT_THAT(problem(), HasSubstr("'table.weight' has type F8_E4M3, needed I8"));
}

class Experts : public Reading {
 protected:
  static constexpr int kExperts = 6;

  Experts() {
    for (int e = 0; e < kExperts; ++e) {
      const std::string prefix = "layers.0.ffn.experts." + std::to_string(e) + ".";
      for (int matrix = 1; matrix <= 3; ++matrix) {
        const bool is_down = matrix == 2;
        const std::string name = prefix + "w" + std::to_string(matrix);
        add(name + ".weight", DType::kI8, {is_down ? 64 : 32, is_down ? 16 : 32}, 10 * e + matrix);
        add(name + ".scale", DType::kF8E8M0, {is_down ? 64 : 32, is_down ? 1 : 2}, e + matrix);
      }
    }
  }

  std::vector<kernels::LinearWeight> gate_up(std::int32_t first, std::int32_t last) {
    return reader_->indexed_experts("layers.0.ffn.experts", {{"w1", 32}, {"w3", 32}}, {first, last, kExperts}, 64,
                                    kernels::RowOrder::kInterleave);
  }
  std::vector<kernels::LinearWeight> down(std::int32_t first, std::int32_t last) {
    return reader_->indexed_experts("layers.0.ffn.experts", {{"w2", 64}}, {first, last, kExperts}, 32,
                                    kernels::RowOrder::kConcatenate);
  }
  void remove(const std::string& name) {
    const auto place = std::ranges::find(tensors_, name, &weights::SafetensorsWriter::Tensor::name);
    data_.erase(data_.begin() + (place - tensors_.begin()));
    tensors_.erase(place);
  }
};

TEST_F(Experts, OnlyThoseOfTheRangeAreTouched) {
  add("layers.0.ffn.experts.6.w1.weight", DType::kI8, {32, 32});
  add("layers.0.ffn.experts.2.w4.weight", DType::kI8, {32, 32});
  for (const auto canonical_name : {WeightReader::CanonicalName(nullptr), &weights::deepseek_tensor_name}) {
    open(canonical_name);
    const std::vector<kernels::LinearWeight> pairs = gate_up(2, 4);
    const std::vector<kernels::LinearWeight> downs = down(2, 4);
    ASSERT_EQ(problem(), "");
    ASSERT_EQ(pairs.size(), 2U);
    ASSERT_EQ(downs.size(), 2U);
    for (std::int64_t row = 0; row < 64; ++row) {
      const std::string name = std::string("layers.0.ffn.experts.3.") + (row % 2 == 0 ? "w1" : "w3");
      EXPECT_EQ(row_of(pairs[1], row)[5], fp4(name, 64, row / 2, 5));
      EXPECT_EQ(row_of(downs[0], row)[31], fp4("layers.0.ffn.experts.2.w2", 32, row, 31));
    }
    EXPECT_EQ(reader_->num_parameters(), 2 * 3 * 32 * 64);
    EXPECT_FALSE(checkpoint_->touched().empty());
    EXPECT_THAT(checkpoint_->touched(),
                Each(::testing::AnyOf(StartsWith("layers.0.ffn.experts.2."), StartsWith("layers.0.ffn.experts.3."))));
    // What belongs to other ranks is expected; what belongs to no expert is not.
    EXPECT_THAT(reader_->unused(), ::testing::UnorderedElementsAre("layers.0.ffn.experts.6.w1.weight",
                                                                   "layers.0.ffn.experts.2.w4.weight"));
  }
}

TEST_F(Experts, EveryProblemIsNamed) {
  remove("layers.0.ffn.experts.0.w1.weight");
  remove("layers.0.ffn.experts.1.w3.scale");
  remove("layers.0.ffn.experts.2.w1.scale");
  add("layers.0.ffn.experts.2.w1.scale", DType::kF8E8M0, {32, 4});
  remove("layers.0.ffn.experts.3.w3.weight");
  add("layers.0.ffn.experts.3.w3.weight", DType::kI8, {32, 16});
  remove("layers.0.ffn.experts.5.w1.weight");  // of no interest
  open();
  EXPECT_EQ(gate_up(0, 4).size(), 4U);
  EXPECT_THAT(problem(), AllOf(HasSubstr("'layers.0.ffn.experts.0.w1.weight' of shape [32, 64] is missing"),
                               HasSubstr("'layers.0.ffn.experts.1.w3.weight' is I8 without scales, needed "
                                         "'layers.0.ffn.experts.1.w3.scale'"),
                               HasSubstr("'layers.0.ffn.experts.2.w1.scale' have shape [32, 4], needs [32, 2]"),
                               HasSubstr("'layers.0.ffn.experts.3.w3.weight' has shape [32, 16], needed [32, 32]"),
                               Not(HasSubstr("experts.5"))));
}

TEST_F(Reading, RowGroupsAreSlicesOfTheWhole) {
  add("o.weight", DType::kF8E4M3, {96, 40}, 4);
  add("o.scale", DType::kF8E8M0, {3, 2}, 1);
  open();
  const std::vector<kernels::LinearWeight> groups = reader_->row_groups("o", 3, 32, 40);
  ASSERT_EQ(problem(), "");
  ASSERT_EQ(groups.size(), 3U);
  for (std::int64_t row = 0; row < 96; ++row) {
    EXPECT_EQ(row_of(groups[static_cast<std::size_t>(row / 32)], row % 32)[33],
              fp8("o.weight", "o.scale", 40, row, 33));
  }
  EXPECT_THAT(reader_->row_groups("o", 6, 16, 40), IsEmpty());
  EXPECT_THAT(problem(),
              HasSubstr("'o.weight' has a scale per 32 rows, needed a number that divides its groups of 16"));
}

TEST_F(Reading, OtherSpellingsOfNames) {
  add("model.layers.0.self_attn.wkv.weight", DType::kF8E4M3, {32, 32}, 4);
  add("model.layers.0.self_attn.wkv.weight_scale_inv", DType::kF8E8M0, {1, 1}, 1);
  add_counting("model.layers.0.mlp.gate.e_score_correction_bias", {2});
  add_counting("model.norm.weight", {2});
  open(&weights::deepseek_tensor_name);
  EXPECT_TRUE(reader_->has("layers.0.attn.wkv.scale"));
  const kernels::LinearWeight kv = reader_->linear("layers.0.attn.wkv", 32, 32);
  EXPECT_THAT(reader_->floats("layers.0.ffn.gate.bias", {2}), ElementsAre(0, 1));
  EXPECT_THAT(reader_->unused(), ElementsAre("model.norm.weight"));
  ASSERT_EQ(problem(), "");
  EXPECT_EQ(row_of(kv, 7)[3],
            fp8("model.layers.0.self_attn.wkv.weight", "model.layers.0.self_attn.wkv.weight_scale_inv", 32, 7, 3));

  add_counting("norm.weight", {2});
  open(&weights::deepseek_tensor_name);
  EXPECT_THAT(problem(), AllOf(HasSubstr("'norm.weight'"), HasSubstr("'model.norm.weight'")));
}

TEST_F(Reading, WhatIsLeftOutOnPurposeIsNotUnused) {
  for (const char* name : {"mtp.0.norm.weight", "mtp2.weight", "vision.norm.weight", "image_start", "image_start2"}) {
    add_counting(name, {1});
  }
  open();
  reader_->ignore("mtp.");
  reader_->ignore("vision.");
  reader_->ignore("image_start");
  EXPECT_THAT(reader_->unused(), ::testing::UnorderedElementsAre("mtp2.weight", "image_start2"));
}

}  // namespace
}  // namespace thalweg::layers
