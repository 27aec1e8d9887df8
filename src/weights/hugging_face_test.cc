#include "weights/hugging_face.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <string>

#include "weights/fp8.h"
#include "weights/json_metadata.h"
#include "weights/test_files.h"

namespace thalweg::weights {
namespace {

using test_files::aligned_safetensors;
using test_files::bytes_of;
using test_files::TemporaryFolder;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr const char* kConfig = R"({"architectures":["LlamaForCausalLM"],"hidden_size":64,"rope_theta":10000,
  "rope_scaling":{"rope_type":"llama3","factor":32.0},"tie_word_embeddings":true,"eos_token_id":[1,2],"pad":null,
  "text_config":{"hidden_size":65},"a.b":1,"a":{"b":2,"c":3},"big":18446744073709551615,"tiny":1e-5})";

std::string tensor_file(const std::string& name, const std::string& data) {
  return aligned_safetensors("{\"" + name + R"(":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", data);
}

std::string refusal(const TemporaryFolder& folder) {
  const Result<std::unique_ptr<Checkpoint>> checkpoint = Checkpoint::open(folder.path());
  return checkpoint ? "" : checkpoint.error().message;
}

TEST(JsonMetadata, ReadsDottedPathsWithoutLoss) {
  const JsonMetadata config = JsonMetadata::parse(kConfig, "config.json").value();
  EXPECT_EQ(config.get_int("hidden_size").value(), 64);
  EXPECT_EQ(config.get_float("rope_theta").value(), 10000.0);
  EXPECT_EQ(config.get_int("rope_scaling.factor").value(), 32);
  EXPECT_EQ(config.get_string("rope_scaling.rope_type").value(), "llama3");
  EXPECT_TRUE(config.get_bool("tie_word_embeddings").value());
  EXPECT_THAT(config.get_ints("eos_token_id").value(), ElementsAre(1, 2));
  EXPECT_THAT(config.get_floats("eos_token_id").value(), ElementsAre(1.0, 2.0));
  EXPECT_THAT(config.get_strings("architectures").value(), ElementsAre("LlamaForCausalLM"));
  EXPECT_EQ(config.get_float("tiny").value(), 1e-5);
  EXPECT_EQ(config.get_int("a.b").value(), 1);
  EXPECT_EQ(config.get_int("a.c").value(), 3);
  EXPECT_EQ(language_model_key(config, "hidden_size"), "text_config.hidden_size");
  EXPECT_EQ(language_model_key(config, "rope_theta"), "rope_theta");
  EXPECT_FALSE(config.has("pad"));
  EXPECT_FALSE(config.has("rope_scaling.none"));
  EXPECT_FALSE(config.has("hidden_size.none"));
  EXPECT_EQ(config.get_int("pad").error().code, ErrorCode::kNotFound);
}

TEST(JsonMetadata, WrongTypesNameKeyFoundAndNeeded) {
  const JsonMetadata config = JsonMetadata::parse(kConfig, "config.json").value();
  const auto says = [](const auto& result) { return result ? "no error" : result.error().message; };
  const auto names = [](const char* key, const char* found, const char* needed) {
    return AllOf(HasSubstr(std::string("'") + key), HasSubstr(std::string("is ") + found),
                 HasSubstr(std::string("needs ") + needed), HasSubstr("config.json"));
  };
  EXPECT_THAT(says(config.get_int("tiny")), names("tiny", "the number 1E-5", "a 64-bit integer"));
  EXPECT_THAT(says(config.get_int("big")), names("big", "the number 18446744073709551615", "a 64-bit integer"));
  EXPECT_THAT(says(config.get_float("big")), names("big", "the number", "a finite number"));
  EXPECT_THAT(says(config.get_bool("hidden_size")), names("hidden_size", "the number 64", "a bool"));
  EXPECT_THAT(says(config.get_int("tie_word_embeddings")), names("tie_word_embeddings", "a bool", "a 64-bit"));
  EXPECT_THAT(says(config.get_string("eos_token_id")), names("eos_token_id", "an array of 2", "a string"));
  EXPECT_THAT(says(config.get_ints("hidden_size")), names("hidden_size", "the number 64", "an array of 64-bit"));
  EXPECT_THAT(says(config.get_ints("architectures")), names("architectures[0]", "the string 'Llama", "an array of"));
  EXPECT_THAT(says(config.get_string("rope_scaling")), names("rope_scaling", "an object", "a string"));
  const JsonMetadata overflowing = JsonMetadata::parse(R"({"x":1e400})", "c").value();
  EXPECT_FALSE(overflowing.get_float("x").has_value());
}

TEST(JsonMetadata, DescribesMembersInOrder) {
  const JsonMetadata config =
      JsonMetadata::parse(R"({"z":1,"a":{"y":"\u001bx","b":[1,[2],"c"]},"n":null,"e":{}})", "config.json").value();
  using Row = std::pair<std::string, std::string>;
  EXPECT_THAT(config.describe(), ElementsAre(Row("z", "1"), Row("a.y", "\\x1bx"), Row("a.b", "[3] 1, ..., c"),
                                             Row("n", "null"), Row("e", "{}")));
}

TEST(JsonMetadata, RefusesOtherText) {
  const auto message = [](const std::string& text) { return JsonMetadata::parse(text, "config.json").error().message; };
  EXPECT_THAT(message(""), HasSubstr("config.json"));
  EXPECT_THAT(message("[1]"), HasSubstr("needs an object"));
  EXPECT_THAT(message("{\n\n\"a\":tru}"), HasSubstr("line 3"));
  EXPECT_THAT(message("{} {}"), HasSubstr("config.json"));
  EXPECT_THAT(message("{\"a\":\"\xff\"}"), HasSubstr("config.json"));
  std::string deep = "{\"a\":";
  deep.append(3000, '[').append(3000, ']').append("}");
  EXPECT_THAT(message(deep), HasSubstr("config.json"));
}

TEST(HuggingFace, OpensASingleFile) {
  TemporaryFolder folder;
  folder.write("config.json", kConfig);
  folder.write("generation_config.json", R"({"eos_token_id":7})");
  folder.write("other-name.safetensors", tensor_file("t", "tttt"));
  const auto opened = Checkpoint::open(folder.path());
  ASSERT_TRUE(opened.has_value()) << opened.error().message;
  const Checkpoint& checkpoint = **opened;
  EXPECT_EQ(checkpoint.kind(), CheckpointKind::kHuggingFace);
  EXPECT_EQ(checkpoint.architecture(), "LlamaForCausalLM");
  EXPECT_EQ(checkpoint.metadata().get_int("hidden_size").value(), 64);
  EXPECT_EQ(checkpoint.generation_metadata().get_int("eos_token_id").value(), 7);
  EXPECT_EQ(checkpoint.gguf_metadata(), nullptr);
  const TensorInfo* tensor = checkpoint.require("t").value();
  EXPECT_EQ(std::memcmp(checkpoint.bytes(*tensor).data(), "tttt", 4), 0);
  EXPECT_THAT(refusal(folder), IsEmpty());

  folder.write("second.safetensors", tensor_file("u", "uuuu"));
  EXPECT_THAT(refusal(folder), HasSubstr("2 safetensors files"));
  folder.write("model.safetensors", tensor_file("v", "vvvv"));
  EXPECT_NE(Checkpoint::open(folder.path()).value()->find("v"), nullptr);
}

TEST(HuggingFace, OpensShards) {
  TemporaryFolder folder;
  folder.write("config.json", kConfig);
  folder.write("one.safetensors", tensor_file("a", "aaaa"));
  folder.write("two.safetensors", tensor_file("b", "bbbb"));
  const auto index = [&](const std::string& map) {
    folder.write("model.safetensors.index.json", R"({"metadata":{"total_size":8},"weight_map":)" + map + "}");
    return refusal(folder);
  };
  EXPECT_EQ(index(R"({"a":"one.safetensors","b":"two.safetensors"})"), "");
  const auto checkpoint = Checkpoint::open(folder.path()).value();
  EXPECT_EQ(std::memcmp(checkpoint->bytes(*checkpoint->find("b")).data(), "bbbb", 4), 0);
  EXPECT_EQ(checkpoint->files().size(), 2u);

  EXPECT_THAT(index(R"({"a":"one.safetensors","b":"three.safetensors"})"),
              AllOf(HasSubstr("'three.safetensors'"), HasSubstr("missing")));
  EXPECT_THAT(index(R"({"a":"two.safetensors","b":"one.safetensors"})"),
              AllOf(HasSubstr("'a' is in 'two.safetensors'"), HasSubstr("but it is in"), HasSubstr("one.safetensors")));
  EXPECT_THAT(index(R"({"a":"one.safetensors","c":"two.safetensors"})"),
              AllOf(HasSubstr("'c' is in 'two.safetensors'"), HasSubstr("no shard has it")));
  for (const char* unsafe : {"../one.safetensors", "/etc/passwd", "sub/one.safetensors", "..", "", "a\\\\b"}) {
    EXPECT_THAT(index(std::string(R"({"a":")") + unsafe + "\"}"), HasSubstr("in the same folder")) << unsafe;
  }
  EXPECT_THAT(index("{}"), HasSubstr("empty"));
  EXPECT_THAT(index("[]"), HasSubstr("weight_map"));
  EXPECT_THAT(index(R"({"a":1})"), AllOf(HasSubstr("weight_map.a"), HasSubstr("needs a string")));
  folder.write("two.safetensors", tensor_file("a", "aaaa"));
  EXPECT_THAT(index(R"({"a":"one.safetensors","b":"two.safetensors"})"), HasSubstr("'a' appears twice"));
}

TEST(HuggingFace, SaysWhatIsMissing) {
  TemporaryFolder folder;
  EXPECT_THAT(refusal(folder), HasSubstr("no config.json"));
  folder.write("model.Q8_0.gguf", "GGUF");
  EXPECT_THAT(refusal(folder), HasSubstr("model.Q8_0.gguf"));
  folder.write("config.json", kConfig);
  EXPECT_THAT(refusal(folder), HasSubstr("neither model.safetensors nor"));
  folder.write("pytorch_model.bin", "");
  EXPECT_THAT(refusal(folder), AllOf(HasSubstr("'pytorch_model.bin'"), HasSubstr("pickle")));
  folder.write("model.safetensors", tensor_file("t", "ttt"));
  EXPECT_THAT(refusal(folder), AllOf(HasSubstr("model.safetensors"), HasSubstr("beyond the 3 bytes")));
  folder.write("config.json", R"({"hidden_size":1})");
  EXPECT_THAT(refusal(folder), HasSubstr("'architectures'"));
  folder.write("config.json", R"({"architectures":[]})");
  EXPECT_THAT(refusal(folder), HasSubstr("0 architectures"));
  folder.write("config.json", "{");
  EXPECT_THAT(refusal(folder), HasSubstr("no valid JSON"));
}

TEST(HuggingFace, UnsupportedTypesAreAnErrorOnlyForWhoNeedsThem) {
  TemporaryFolder folder;
  folder.write("config.json", kConfig);
  folder.write("model.safetensors", aligned_safetensors(R"({"d":{"dtype":"F64","shape":[1],"data_offsets":[0,8]},)"
                                                        R"("t":{"dtype":"F32","shape":[1],"data_offsets":[8,12]}})",
                                                        "ddddddddtttt"));
  const auto checkpoint = Checkpoint::open(folder.path());
  ASSERT_TRUE(checkpoint.has_value()) << checkpoint.error().message;
  EXPECT_TRUE((*checkpoint)->require("t").has_value());
  EXPECT_EQ((*checkpoint)->find("d"), nullptr);
  EXPECT_THAT((*checkpoint)->require("d").error().message, AllOf(HasSubstr("'d'"), HasSubstr("F64")));
  EXPECT_EQ((*checkpoint)->require("x").error().code, ErrorCode::kNotFound);
}

class Fp8 : public testing::Test {
 protected:
  // A weight of [130, 256] with scales of the given type and shape: their values, or bytes as numbers.
  Result<std::vector<float>> scales(const std::string& quantization, const std::string& type, int rows, int cols,
                                    const std::string& scale, const std::string& weight_type = "F8_E4M3") {
    std::string data(static_cast<std::size_t>(130 * 256), '\x38');
    const std::size_t begin = data.size();
    for (int i = 0; i < rows * cols; ++i) data += scale;
    folder_.write("config.json", R"({"architectures":["X"])" + quantization + "}");
    folder_.write(
        "model.safetensors",
        aligned_safetensors(R"({"w":{"dtype":")" + weight_type + R"(","shape":[130,256],"data_offsets":[0,)" +
                                std::to_string(begin) + R"(]},"w_scale_inv":{"dtype":")" + type + R"(","shape":[)" +
                                std::to_string(rows) + "," + std::to_string(cols) + R"(],"data_offsets":[)" +
                                std::to_string(begin) + "," + std::to_string(data.size()) + "]}}",
                            data));
    auto checkpoint = Checkpoint::open(folder_.path());
    if (!checkpoint) return std::unexpected(checkpoint.error());
    Result<BlockScales> read =
        read_block_scales(**checkpoint, *(*checkpoint)->find("w"), *(*checkpoint)->find("w_scale_inv"));
    if (!read) return std::unexpected(read.error());
    for (const std::byte byte : read->bytes) read->values.push_back(std::to_integer<std::uint8_t>(byte));
    return read->values;
  }

  TemporaryFolder folder_;
};

constexpr const char* kBlocks =
    R"(,"quantization_config":{"quant_method":"fp8","fmt":"e4m3","weight_block_size":[128,128]})";

TEST_F(Fp8, ReadsScalesOfWholeAndPartialBlocks) {
  EXPECT_THAT(scales(kBlocks, "F32", 2, 2, bytes_of(0.5f)).value(), ElementsAre(0.5f, 0.5f, 0.5f, 0.5f));
  EXPECT_THAT(scales(kBlocks, "BF16", 2, 2, bytes_of<std::uint16_t>(0x3f00)).value(),
              ElementsAre(0.5f, 0.5f, 0.5f, 0.5f));
}

constexpr const char* kPowersOfTwo =
    R"(,"quantization_config":{"quant_method":"fp8","weight_block_size":[64,128],"scale_fmt":"ue8m0")";

TEST_F(Fp8, KeepsTheBytesOfPowersOfTwo) {
  EXPECT_THAT(scales(std::string(kPowersOfTwo) + "}", "F8_E8M0", 3, 2, "\x78").value(),
              ElementsAre(0x78, 0x78, 0x78, 0x78, 0x78, 0x78));
  EXPECT_THAT(scales(std::string(kPowersOfTwo) + "}", "F32", 3, 2, bytes_of(0.25f)).value(), testing::Each(0.25f));
  const auto fp4 = scales(std::string(kPowersOfTwo) + R"(,"expert_dtype":"fp4"})", "F8_E8M0", 130, 16, "\x70", "I8");
  ASSERT_TRUE(fp4.has_value()) << fp4.error().message;
  EXPECT_EQ(fp4->size(), 130u * 16u);
}

TEST_F(Fp8, RefusesContradictions) {
  const auto message = [&](const std::string& members, const std::string& type, int rows, int cols,
                           const std::string& scale, const std::string& weight_type) {
    return scales(kPowersOfTwo + members + "}", type, rows, cols, scale, weight_type).error().message;
  };
  EXPECT_THAT(message("", "F32", 3, 2, bytes_of(0.3f), "F8_E4M3"), HasSubstr("hold 0.3 at [0], needs powers of two"));
  EXPECT_THAT(message("", "F8_E8M0", 3, 2, "\xff", "F8_E4M3"), HasSubstr("nan at [0]"));
  EXPECT_THAT(message("", "F8_E8M0", 2, 2, "\x70", "F8_E4M3"), HasSubstr("needs [3, 2]"));
  EXPECT_THAT(message("", "F8_E8M0", 130, 8, "\x70", "I8"),
              AllOf(HasSubstr("needs [130, 16]"), HasSubstr("[130, 512]"), HasSubstr("[1, 32]")));
  EXPECT_THAT(message("", "F32", 130, 16, bytes_of(0.25f), "I8"), HasSubstr("F32, needs F8_E8M0"));
  EXPECT_THAT(message(R"(,"expert_dtype":"fp8")", "F8_E8M0", 130, 16, "\x70", "I8"), HasSubstr("expert_dtype"));
  EXPECT_THAT(message(R"(,"expert_dtype":"int4")", "F8_E8M0", 130, 16, "\x70", "I8"), HasSubstr("'fp4' or 'fp8'"));
  EXPECT_THAT(scales(R"(,"quantization_config":{"quant_method":"fp8","weight_block_size":[64,128],"scale_fmt":"log2"})",
                     "F32", 3, 2, bytes_of(0.5f))
                  .error()
                  .message,
              HasSubstr("'ue8m0' or 'float'"));
}

TEST_F(Fp8, NamesWhatIsWrong) {
  const auto message = [&](const std::string& quantization, const std::string& type, int rows,
                           const std::string& scale) {
    return scales(quantization, type, rows, 2, scale).error().message;
  };
  EXPECT_THAT(message(kBlocks, "F32", 1, bytes_of(0.5f)),
              AllOf(HasSubstr("'w_scale_inv'"), HasSubstr("[1, 2]"), HasSubstr("needs [2, 2]")));
  EXPECT_THAT(message(kBlocks, "F16", 2, bytes_of<std::uint16_t>(0x3800)),
              HasSubstr("F16, needs F32, BF16 or F8_E8M0"));
  EXPECT_THAT(message(kBlocks, "F32", 2, bytes_of(0x7f800000u)), HasSubstr("inf at [0]"));
  EXPECT_THAT(message("", "F32", 2, bytes_of(0.5f)), HasSubstr("no quantization_config"));
  EXPECT_THAT(message(R"(,"quantization_config":{"quant_method":"gptq"})", "F32", 2, bytes_of(0.5f)),
              HasSubstr("'gptq'"));
  EXPECT_THAT(message(R"(,"quantization_config":{"quant_method":"fp8"})", "F32", 2, bytes_of(0.5f)),
              HasSubstr("weight_block_size"));
  EXPECT_THAT(
      message(R"(,"quantization_config":{"quant_method":"fp8","weight_block_size":[0,1]})", "F32", 2, bytes_of(0.5f)),
      HasSubstr("[0, 1]"));
  EXPECT_THAT(message(R"(,"quantization_config":{"quant_method":"fp8","fmt":"e5m2","weight_block_size":[128,128]})",
                      "F32", 2, bytes_of(0.5f)),
              HasSubstr("'e5m2'"));
}

}  // namespace
}  // namespace thalweg::weights
