#include "weights/gguf.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <limits>
#include <string>

#include "weights/checkpoint.h"
#include "weights/test_files.h"

namespace thalweg::weights {
namespace {

using test_files::bytes_of;
using test_files::Gguf;
using test_files::gguf_string;
using test_files::small_gguf;
using test_files::TemporaryFolder;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr std::uint64_t kHuge = std::uint64_t{1} << 60;

std::span<const std::byte> bytes(const std::string& text) { return std::as_bytes(std::span(text)); }

// The message of a refused file; empty when it was taken.
std::string refusal(const std::string& content) {
  const Result<GgufFile> file = parse_gguf(bytes(content), "toy.gguf");
  if (!file) return file.error().message;
  const Result<TensorTable> table = TensorTable::create(file->tensors, std::vector<std::string>{"toy.gguf"});
  return table ? "" : table.error().message;
}

std::string refusal(const std::function<void(Gguf&)>& change) {
  Gguf file = small_gguf();
  change(file);
  return refusal(file.build());
}

TEST(Gguf, ReadsMetadataOfEveryType) {
  const std::string content = small_gguf().build();
  const Result<GgufFile> file = parse_gguf(bytes(content), "toy.gguf");
  ASSERT_TRUE(file.has_value()) << file.error().message;
  const GgufMetadata& metadata = file->metadata;
  EXPECT_EQ(metadata.get_string("general.architecture").value(), "llama");
  EXPECT_EQ(metadata.get_int("llama.block_count").value(), 2);
  EXPECT_EQ(metadata.get_float("llama.block_count").value(), 2.0);
  EXPECT_EQ(metadata.get_float("llama.rope.freq_base").value(), 10000.0);
  EXPECT_EQ(metadata.get_int("llama.rope.freq_base").value(), 10000);
  EXPECT_TRUE(metadata.get_bool("tokenizer.ggml.add_bos_token").value());
  EXPECT_EQ(metadata.get_int("test.int64").value(), -7);
  EXPECT_EQ(metadata.get_float("test.float64").value(), 0.1);
  EXPECT_THAT(metadata.string_array("tokenizer.ggml.tokens").value(), ElementsAre("<s>", "a", "▁word", ""));
  EXPECT_THAT(metadata.get_strings("tokenizer.ggml.tokens").value(), ElementsAre("<s>", "a", "▁word", ""));
  EXPECT_THAT(metadata.float_array("tokenizer.ggml.scores").value(), ElementsAre(0.0f, -1.5f, -2.0f, -3.0f));
  EXPECT_THAT(metadata.get_floats("tokenizer.ggml.scores").value(), ElementsAre(0.0, -1.5, -2.0, -3.0));
  EXPECT_THAT(metadata.int_array("tokenizer.ggml.token_type").value(), ElementsAre(3, 1, 1, 6));
  EXPECT_THAT(metadata.get_ints("test.bytes").value(), ElementsAre(1, 2, 255));
  EXPECT_THAT(metadata.int_array("test.bytes").value(), ElementsAre(1, 2, 255));
}

TEST(Gguf, DescribesMetadataInFileOrderAndFitForATerminal) {
  Gguf file;
  file.add_string("general.architecture", "llama")
      .add_string("evil", std::string("\x1b[2J\xff", 5))
      .add_array<std::int32_t>("many", 5, {1, 2, 3, 4, 5, 6, 7})
      .add_strings("few", {"x", "\n"})
      .add_bool("flag", false);
  const std::string content = file.build();
  const auto shown = parse_gguf(bytes(content), "toy.gguf").value().metadata.describe();
  using Row = std::pair<std::string, std::string>;
  EXPECT_THAT(shown, ElementsAre(Row("general.architecture", "llama"), Row("evil", "\\x1b[2J\\xff"),
                                 Row("many", "[7 i32] 1, 2, 3, 4, 5, 6, ..."), Row("few", "[2 string] x, \\x0a"),
                                 Row("flag", "false")));
}

TEST(Gguf, ReadsTensors) {
  const std::string content = small_gguf().build();
  const Result<GgufFile> file = parse_gguf(bytes(content), "toy.gguf");
  ASSERT_TRUE(file.has_value()) << file.error().message;
  ASSERT_EQ(file->tensors.size(), 4u);
  const TensorInfo& embedding = file->tensors[0];
  EXPECT_EQ(embedding.name, "token_embd.weight");
  EXPECT_THAT(embedding.shape, ElementsAre(3, 4));  // outermost first
  EXPECT_EQ(embedding.num_bytes, 48u);
  EXPECT_EQ(embedding.num_elements(), 12);
  const TensorInfo& query = file->tensors[1];
  EXPECT_EQ(query.dtype, device::DType::kQ4_1);
  EXPECT_EQ(query.num_bytes, 40u);
  EXPECT_EQ(content.substr(query.offset, query.num_bytes), std::string(40, '\2'));
  EXPECT_EQ(content.substr(file->tensors[2].offset, 210), std::string(210, '\3'));
  EXPECT_EQ(file->tensors[3].dtype, device::DType::kBF16);
}

TEST(Gguf, SizesFollowFromShapeAndTypeForEveryTypeSupported) {
  struct Case {
    std::uint32_t type;
    device::DType dtype;
    std::size_t num_bytes;  // of 256 elements
  };
  const Case cases[] = {
      {0, device::DType::kF32, 1024},  {1, device::DType::kF16, 512},   {30, device::DType::kBF16, 512},
      {2, device::DType::kQ4_0, 144},  {3, device::DType::kQ4_1, 160},  {6, device::DType::kQ5_0, 176},
      {7, device::DType::kQ5_1, 192},  {8, device::DType::kQ8_0, 272},  {12, device::DType::kQ4_K, 144},
      {13, device::DType::kQ5_K, 176}, {14, device::DType::kQ6_K, 210}, {24, device::DType::kI8, 256},
      {26, device::DType::kI32, 1024}, {27, device::DType::kI64, 2048}};
  for (const Case& expected : cases) {
    Gguf file;
    file.add_tensor("t", {256}, expected.type, std::string(expected.num_bytes, 'x'));
    const std::string content = file.build();
    const Result<GgufFile> parsed = parse_gguf(bytes(content), "toy.gguf");
    ASSERT_TRUE(parsed.has_value()) << parsed.error().message;
    EXPECT_EQ(parsed->tensors[0].dtype, expected.dtype);
    EXPECT_EQ(parsed->tensors[0].num_bytes, expected.num_bytes);
  }
}

TEST(Gguf, AcceptsVersion2AndOtherAlignments) {
  EXPECT_EQ(refusal([](Gguf& file) { file.version = 2; }), "");
  Gguf file;
  file.alignment = 64;
  file.add_u32("general.alignment", 64).add_tensor("a", {1}, 0, "aaaa").add_tensor("b", {1}, 0, "bbbb");
  const std::string content = file.build();
  const Result<GgufFile> parsed = parse_gguf(bytes(content), "toy.gguf");
  ASSERT_TRUE(parsed.has_value()) << parsed.error().message;
  EXPECT_EQ(content.substr(parsed->tensors[1].offset, 4), "bbbb");
  EXPECT_EQ(parsed->tensors[1].offset % 64, 0u);
}

// Field report B053: the element type is looked at before anything is read.
TEST(Gguf, WrongTypesNameKeyFoundAndNeeded) {
  Gguf file;
  file.add_array<std::uint8_t>("scores", 0, {1, 2})
      .add_strings("types", {"normal"})
      .add_array<std::int32_t>("merges", 5, {1})
      .add_array<std::int64_t>("wide", 11, {std::int64_t{1} << 40})
      .add_u32("number", 3)
      .add_string("text", "3")
      .add_f32("half", 0.5f)
      .add("big", 10, std::uint64_t{1} << 63)
      .add("odd", 10, (std::uint64_t{1} << 53) + 1)
      .add_f32("infinite", std::numeric_limits<float>::infinity())
      .add("flag", 7, std::uint8_t{2});
  const std::string content = file.build();
  const GgufMetadata metadata = parse_gguf(bytes(content), "toy.gguf").value().metadata;
  const auto says = [](const auto& result) { return result ? "no error" : result.error().message; };
  const auto names = [](const char* key, const char* found, const char* needed) {
    return AllOf(HasSubstr(std::string("'") + key + "'"), HasSubstr(std::string("is ") + found),
                 HasSubstr(std::string("needs ") + needed), HasSubstr("toy.gguf"));
  };
  EXPECT_THAT(says(metadata.float_array("scores")), names("scores", "an array of 2 u8", "an array of f32"));
  EXPECT_THAT(says(metadata.int_array("types")), names("types", "an array of 1 string", "an array of i32"));
  EXPECT_THAT(says(metadata.string_array("merges")), names("merges", "an array of 1 i32", "an array of string"));
  EXPECT_THAT(says(metadata.int_array("wide")), names("wide", "1099511627776 at [0]", "32-bit"));
  EXPECT_THAT(says(metadata.get_strings("number")), names("number", "u32", "an array of string"));
  EXPECT_THAT(says(metadata.get_string("number")), names("number", "u32", "a string"));
  EXPECT_THAT(says(metadata.get_int("text")), names("text", "string", "an integer"));
  EXPECT_THAT(says(metadata.get_bool("number")), names("number", "u32", "a bool"));
  EXPECT_THAT(says(metadata.get_int("half")), names("half", "0.5", "a 64-bit integer"));
  EXPECT_THAT(says(metadata.get_int("big")), names("big", "9223372036854775808", "a 64-bit integer"));
  EXPECT_EQ(metadata.get_float("big").value(), std::ldexp(1.0, 63));
  EXPECT_THAT(says(metadata.get_float("odd")), names("odd", "9007199254740993", "a finite number"));
  EXPECT_THAT(says(metadata.get_float("infinite")), names("infinite", "inf", "a finite number"));
  EXPECT_THAT(says(metadata.get_bool("flag")), names("flag", "a bool of value 2", "0 or 1"));
  EXPECT_EQ(metadata.get_int("absent").error().code, ErrorCode::kNotFound);
  EXPECT_THAT(says(metadata.get_int("absent")), HasSubstr("'absent'"));
}

TEST(Gguf, RefusesOtherFilesAndVersions) {
  EXPECT_THAT(refusal(std::string()), HasSubstr("ends inside the magic"));
  EXPECT_THAT(refusal(std::string("PK\3\4 and more")), HasSubstr("504b0304"));
  EXPECT_THAT(refusal([](Gguf& file) { file.version = 1; }), HasSubstr("version 1"));
  EXPECT_THAT(refusal([](Gguf& file) { file.version = 4; }), HasSubstr("version 4"));
  EXPECT_THAT(refusal([](Gguf& file) { file.version = 0x03000000; }), HasSubstr("big-endian"));
}

TEST(Gguf, RefusesEveryTruncation) {
  const std::string whole = small_gguf().build();
  EXPECT_EQ(refusal(whole), "");
  for (std::size_t size = 0; size < whole.size(); ++size) {
    // A copy of just that size, so that a sanitizer sees any read behind it.
    EXPECT_NE(refusal(std::string(whole.data(), size)), "") << size;
  }
}

// Field report B051: whatever a header says, nothing is read behind the file and nothing large is allocated.
TEST(Gguf, RefusesAbsurdCountsAndLengths) {
  EXPECT_THAT(refusal([](Gguf& file) { file.num_tensors = kHuge; }), HasSubstr("1152921504606846976 tensors"));
  EXPECT_THAT(refusal([](Gguf& file) { file.num_pairs = kHuge; }), HasSubstr("1152921504606846976 metadata pairs"));
  EXPECT_THAT(refusal([](Gguf& file) { file.pairs[0].payload = bytes_of(std::uint64_t{1} << 63) + "llama"; }),
              AllOf(HasSubstr("ends inside"), HasSubstr("general.architecture")));
  EXPECT_THAT(refusal([](Gguf& file) { file.pairs[0].payload = bytes_of(~std::uint64_t{0}) + "llama"; }),
              HasSubstr("general.architecture"));
  EXPECT_THAT(refusal([](Gguf& file) {
                file.pairs.push_back({"tokens", 9, bytes_of<std::uint32_t>(8) + bytes_of(std::uint64_t{1} << 31)});
              }),
              AllOf(HasSubstr("'tokens'"), HasSubstr("2147483648 elements")));
  EXPECT_THAT(refusal([](Gguf& file) {
                file.pairs.push_back({"floats", 9, bytes_of<std::uint32_t>(12) + bytes_of(std::uint64_t{1} << 61)});
              }),
              HasSubstr("'floats'"));
  EXPECT_THAT(refusal([](Gguf& file) {
                file.pairs.push_back({"nested", 9, bytes_of<std::uint32_t>(9) + bytes_of<std::uint64_t>(1)});
              }),
              AllOf(HasSubstr("'nested'"), HasSubstr("no array")));
  EXPECT_THAT(refusal([](Gguf& file) { file.pairs.push_back({"odd", 13, "x"}); }), HasSubstr("type 13"));
  EXPECT_THAT(refusal([](Gguf& file) { file.pairs[1].key = ""; }), HasSubstr("key of 0 bytes"));
  EXPECT_THAT(refusal([](Gguf& file) { file.pairs[1].key = std::string(70000, 'k'); }), HasSubstr("70000 bytes"));
}

TEST(Gguf, RefusesNamesThatAppearTwice) {
  EXPECT_THAT(refusal([](Gguf& file) { file.add_u32("llama.block_count", 2); }),
              AllOf(HasSubstr("'llama.block_count'"), HasSubstr("twice")));
  EXPECT_THAT(refusal([](Gguf& file) { file.tensors[1].name = "token_embd.weight"; }),
              AllOf(HasSubstr("'token_embd.weight'"), HasSubstr("twice")));
}

TEST(Gguf, RefusesWrongShapes) {
  const auto shaped = [](std::vector<std::uint64_t> dimensions) {
    return refusal([&](Gguf& file) { file.tensors[1].dimensions = dimensions; });
  };
  EXPECT_THAT(shaped({}), AllOf(HasSubstr("'blk.0.attn_q.weight'"), HasSubstr("0 dimensions")));
  EXPECT_THAT(shaped({32, 1, 1, 1, 1}), HasSubstr("5 dimensions"));
  EXPECT_THAT(shaped({32, 0}), HasSubstr("dimension of 0"));
  EXPECT_THAT(shaped({33, 2}), AllOf(HasSubstr("33 elements"), HasSubstr("multiple of 32")));
  EXPECT_THAT(shaped({std::uint64_t{1} << 63, 2}), HasSubstr("dimension of 9223372036854775808"));
  EXPECT_THAT(shaped({(std::uint64_t{1} << 42) + 32, std::uint64_t{1} << 22}), HasSubstr("overflows"));
  EXPECT_THAT(shaped({std::uint64_t{1} << 32, std::uint64_t{1} << 32}), HasSubstr("overflows"));
  EXPECT_THAT(shaped({(std::uint64_t{1} << 42) + 32}), HasSubstr("beyond the file"));
  EXPECT_THAT(refusal([](Gguf& file) {
                file.tensors[0].dimensions = {(std::uint64_t{1} << 63) - 1, 2};
              }),
              HasSubstr("overflows"));
  EXPECT_THAT(refusal([](Gguf& file) {  // the elements fit, their bytes do not
                file.tensors[0].dimensions = {(std::uint64_t{1} << 62) + 1};
              }),
              HasSubstr("overflows"));
}

TEST(Gguf, RefusesWrongPlaces) {
  const auto placed = [](std::uint64_t offset) {
    return refusal([&](Gguf& file) { file.tensors[1].offset = offset; });
  };
  EXPECT_THAT(placed(65), AllOf(HasSubstr("offset 65"), HasSubstr("multiple of 32")));
  EXPECT_THAT(placed(std::uint64_t{1} << 40), HasSubstr("beyond the file"));
  EXPECT_THAT(placed(~std::uint64_t{31}), HasSubstr("beyond the file"));
  EXPECT_THAT(placed(0),
              AllOf(HasSubstr("overlaps"), HasSubstr("'token_embd.weight'"), HasSubstr("'blk.0.attn_q.weight'")));
  EXPECT_THAT(placed(32), HasSubstr("overlaps"));
}

TEST(Gguf, RefusesWrongAlignments) {
  const auto aligned = [](std::uint32_t alignment) {
    return refusal([&](Gguf& file) { file.add_u32("general.alignment", alignment); });
  };
  EXPECT_EQ(aligned(32), "");
  for (const std::uint32_t alignment : {0u, 1u, 4u, 24u, 1u << 21}) {
    EXPECT_THAT(aligned(alignment), HasSubstr("general.alignment is")) << alignment;
  }
  EXPECT_THAT(refusal([](Gguf& file) { file.add_string("general.alignment", "32"); }), HasSubstr("needs an integer"));
}

TEST(Gguf, RefusesTypesWithoutSupportByName) {
  const auto typed = [](std::uint32_t type) { return refusal([&](Gguf& file) { file.tensors[1].type = type; }); };
  EXPECT_THAT(typed(10), AllOf(HasSubstr("'blk.0.attn_q.weight'"), HasSubstr("Q2_K")));
  EXPECT_THAT(typed(28), HasSubstr("F64"));
  EXPECT_THAT(typed(39), HasSubstr("MXFP4"));
  EXPECT_THAT(typed(4), HasSubstr("unknown type 4"));
  EXPECT_THAT(typed(1000), HasSubstr("unknown type 1000"));
}

Gguf shard(std::uint16_t index, std::uint16_t count, const std::string& tensor) {
  Gguf file;
  if (index == 0) file.add_string("general.architecture", "llama").add_u32("llama.block_count", 2);
  file.add("split.no", 2, index).add("split.count", 2, count).add("split.tensors.count", 5, std::int32_t{count});
  file.add_tensor(tensor, {1}, 0, tensor.substr(0, 4));
  return file;
}

class SplitGguf : public testing::Test {
 protected:
  std::string write(int index, const std::string& tensor) {
    return write(index, shard(static_cast<std::uint16_t>(index), 3, tensor));
  }
  std::string write(int index, const Gguf& file) {
    return folder_.write("m-0000" + std::to_string(index + 1) + "-of-00003.gguf", file.build());
  }
  std::string refusal(const std::string& path) {
    const Result<std::unique_ptr<Checkpoint>> checkpoint = Checkpoint::open(path);
    return checkpoint ? "" : checkpoint.error().message;
  }

  TemporaryFolder folder_;
};

TEST_F(SplitGguf, OpensFromAnyShard) {
  const std::string paths[] = {write(0, "aaaa"), write(1, "bbbb"), write(2, "cccc")};
  for (const std::string& path : paths) {
    const Result<std::unique_ptr<Checkpoint>> checkpoint = Checkpoint::open(path);
    ASSERT_TRUE(checkpoint.has_value()) << checkpoint.error().message;
    EXPECT_EQ((*checkpoint)->path(), path);
    EXPECT_EQ((*checkpoint)->architecture(), "llama");
    EXPECT_EQ((*checkpoint)->metadata().get_int("llama.block_count").value(), 2);
    EXPECT_THAT((*checkpoint)->files(), ElementsAre(paths[0], paths[1], paths[2]));
    for (const char* name : {"aaaa", "bbbb", "cccc"}) {
      const TensorInfo* tensor = (*checkpoint)->find(name);
      ASSERT_NE(tensor, nullptr);
      EXPECT_EQ(std::memcmp((*checkpoint)->bytes(*tensor).data(), name, 4), 0);
      (*checkpoint)->release(*tensor);
      EXPECT_EQ(std::memcmp((*checkpoint)->bytes(*tensor).data(), name, 4), 0);
    }
    EXPECT_EQ((*checkpoint)->find("aaa"), nullptr);
  }
}

TEST_F(SplitGguf, NamesWhatIsWrong) {
  const std::string first = write(0, "aaaa");
  write(1, "bbbb");
  EXPECT_THAT(refusal(first), AllOf(HasSubstr("shard 3 of 3"), HasSubstr("m-00003-of-00003.gguf")));
  write(2, "aaaa");
  EXPECT_THAT(refusal(first), AllOf(HasSubstr("'aaaa' appears twice"), HasSubstr("m-00001-of"), HasSubstr("m-00003")));
  write(2, shard(1, 3, "cccc"));
  EXPECT_THAT(refusal(first), HasSubstr("says it is shard 2 of 3, needs 3 of 3"));
  write(2, shard(2, 3, "cccc").add_tensor("dddd", {1}, 0, "dddd"));
  EXPECT_THAT(refusal(first), AllOf(HasSubstr("4 tensors"), HasSubstr("split.tensors.count says 3")));
  EXPECT_THAT(refusal(folder_.write("renamed.gguf", shard(1, 3, "bbbb").build())),
              HasSubstr("must end in '-00002-of-00003.gguf'"));
  EXPECT_THAT(refusal(folder_.write("outside.gguf", shard(7, 3, "bbbb").build())), HasSubstr("split.no 7"));
}

TEST(GgufFileOnDisk, SaysWhatIsMissing) {
  const TemporaryFolder folder;
  Gguf nameless = small_gguf();
  nameless.pairs.erase(nameless.pairs.begin());
  EXPECT_THAT(Checkpoint::open(folder.write("nameless.gguf", nameless.build())).error().message,
              HasSubstr("general.architecture"));
  nameless.add_string("general.architecture", "\x1b]0;evil\x07");
  EXPECT_THAT(Checkpoint::open(folder.write("evil.gguf", nameless.build())).error().message, HasSubstr("\\x1b]0;evil"));
  EXPECT_THAT(Checkpoint::open(folder.write("text.gguf", "hello world")).error().message, HasSubstr("\"GGUF\""));
  EXPECT_THAT(Checkpoint::open(folder.write("model.bin", "pickle")).error().message, HasSubstr("pickle"));
  EXPECT_THAT(Checkpoint::open(folder.write("a.safetensors", "")).error().message, HasSubstr(folder.path()));
  const auto missing = Checkpoint::open(folder.path() + "/none.gguf");
  EXPECT_EQ(missing.error().code, ErrorCode::kNotFound);
  EXPECT_THAT(missing.error().message, HasSubstr("none.gguf"));
}

TEST(GgufFileOnDisk, RequireNamesTheTensor) {
  const TemporaryFolder folder;
  const auto checkpoint = Checkpoint::open(folder.write("toy.gguf", small_gguf().build()));
  ASSERT_TRUE(checkpoint.has_value()) << checkpoint.error().message;
  EXPECT_EQ((*checkpoint)->kind(), CheckpointKind::kGguf);
  EXPECT_NE((*checkpoint)->gguf_metadata(), nullptr);
  EXPECT_FALSE((*checkpoint)->generation_metadata().has("eos_token_id"));
  EXPECT_EQ((*checkpoint)->require("output_norm.weight").value(), (*checkpoint)->find("output_norm.weight"));
  const auto missing = (*checkpoint)->require("output.weight");
  ASSERT_FALSE(missing.has_value());
  EXPECT_EQ(missing.error().code, ErrorCode::kNotFound);
  EXPECT_THAT(missing.error().message, AllOf(HasSubstr("toy.gguf"), HasSubstr("'output.weight'")));
}

// Facts of the file as the Python package `gguf` reports them.
TEST(SmolLm2, AgreesWithAnIndependentReader) {
  const char* assets = std::getenv("THALWEG_TEST_ASSETS");
  if (assets == nullptr) GTEST_SKIP() << "THALWEG_TEST_ASSETS is not set";
  const std::string path = std::string(assets) + "/SmolLM2-135M-Instruct.Q4_1.gguf";
  const Result<std::unique_ptr<Checkpoint>> opened = Checkpoint::open(path);
  ASSERT_TRUE(opened.has_value()) << opened.error().message;
  const Checkpoint& checkpoint = **opened;
  EXPECT_EQ(checkpoint.architecture(), "llama");
  const GgufMetadata& metadata = *checkpoint.gguf_metadata();
  EXPECT_EQ(metadata.describe().size(), 33u);
  EXPECT_EQ(metadata.get_int("llama.block_count").value(), 30);
  EXPECT_EQ(metadata.get_int("llama.embedding_length").value(), 576);
  EXPECT_EQ(metadata.get_int("llama.attention.head_count_kv").value(), 3);
  EXPECT_EQ(metadata.get_float("llama.attention.layer_norm_rms_epsilon").value(), 9.999999747378752e-06);
  EXPECT_EQ(metadata.get_string("tokenizer.ggml.pre").value(), "smollm");
  EXPECT_FALSE(metadata.get_bool("tokenizer.ggml.add_bos_token").value());
  const std::vector<std::string_view> tokens = metadata.string_array("tokenizer.ggml.tokens").value();
  ASSERT_EQ(tokens.size(), 49152u);
  EXPECT_EQ(tokens[0], "<|endoftext|>");
  EXPECT_EQ(tokens[504], "The");
  EXPECT_EQ(tokens[49151], "ectable");
  EXPECT_EQ(metadata.string_array("tokenizer.ggml.merges").value().size(), 48900u);
  const std::vector<std::int32_t> types = metadata.int_array("tokenizer.ggml.token_type").value();
  ASSERT_EQ(types.size(), 49152u);
  EXPECT_EQ(types[2], 3);

  ASSERT_EQ(checkpoint.tensors().size(), 272u);
  const TensorInfo& embedding = *checkpoint.require("token_embd.weight").value();
  EXPECT_EQ(embedding.dtype, device::DType::kQ8_0);
  EXPECT_THAT(embedding.shape, ElementsAre(49152, 576));
  EXPECT_EQ(embedding.offset, 1785664u);
  EXPECT_EQ(embedding.num_bytes, 30081024u);
  const TensorInfo& down = *checkpoint.require("blk.0.ffn_down.weight").value();
  EXPECT_EQ(down.dtype, device::DType::kQ4_1);
  EXPECT_THAT(down.shape, ElementsAre(576, 1536));
  EXPECT_EQ(down.offset, 31868992u);
  EXPECT_EQ(down.num_bytes, 552960u);
  const TensorInfo& norm = *checkpoint.require("output_norm.weight").value();
  EXPECT_EQ(norm.dtype, device::DType::kF32);
  EXPECT_EQ(norm.offset, 98360128u);
  EXPECT_EQ(norm.offset + norm.num_bytes, std::filesystem::file_size(path));
}

}  // namespace
}  // namespace thalweg::weights
