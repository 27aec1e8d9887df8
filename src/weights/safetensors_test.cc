#include "weights/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <string>

#include "weights/safetensors_writer.h"
#include "weights/test_files.h"

namespace thalweg::weights {
namespace {

using test_files::aligned_safetensors;
using test_files::bytes_of;
using test_files::safetensors;
using test_files::TemporaryFolder;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

std::span<const std::byte> bytes(const std::string& text) { return std::as_bytes(std::span(text)); }

std::string refusal(const std::string& content) {
  const Result<SafetensorsFile> file = parse_safetensors(bytes(content), "toy.safetensors");
  return file ? "" : file.error().message;
}

// Of a file with that header and `num_bytes` of data.
std::string refusal(const std::string& header, std::size_t num_bytes) {
  return refusal(aligned_safetensors(header, std::string(num_bytes, 'x')));
}

const std::string kGood =
    R"({"__metadata__":{"format":"pt"},"b":{"dtype":"BF16","shape":[2,3],"data_offsets":[4,16]},)"
    R"("a":{"dtype":"F32","shape":[],"data_offsets":[0,4]},"none":{"data_offsets":[16,16],"shape":[0,7],"dtype":"I8"}})";

TEST(Safetensors, ReadsTensorsInFileOrder) {
  const std::string content = aligned_safetensors(kGood, "aaaabbbbbbbbbbbb");
  const Result<SafetensorsFile> file = parse_safetensors(bytes(content), "toy.safetensors");
  ASSERT_TRUE(file.has_value()) << file.error().message;
  ASSERT_EQ(file->tensors.size(), 3u);
  EXPECT_EQ(file->tensors[0].name, "a");
  EXPECT_THAT(file->tensors[0].shape, ElementsAre());
  EXPECT_EQ(file->tensors[0].num_elements(), 1);
  EXPECT_EQ(file->tensors[1].name, "b");
  EXPECT_EQ(file->tensors[1].dtype, device::DType::kBF16);
  EXPECT_THAT(file->tensors[1].shape, ElementsAre(2, 3));
  EXPECT_EQ(content.substr(file->tensors[1].offset, file->tensors[1].num_bytes), "bbbbbbbbbbbb");
  EXPECT_EQ(file->tensors[2].num_elements(), 0);
}

TEST(Safetensors, ReadsEveryTypeAndKeepsTheUnsupportedOnesApart) {
  struct Case {
    const char* name;
    std::size_t bits;
    bool supported;
  };
  const Case cases[] = {{"F32", 32, true},     {"F16", 16, true},     {"BF16", 16, true},    {"F8_E4M3", 8, true},
                        {"I8", 8, true},       {"U8", 8, true},       {"I32", 32, true},     {"I64", 64, true},
                        {"F64", 64, false},    {"BOOL", 8, false},    {"I16", 16, false},    {"U16", 16, false},
                        {"U32", 32, false},    {"U64", 64, false},    {"F8_E5M2", 8, false}, {"F8_E8M0", 8, true},
                        {"F6_E2M3", 6, false}, {"F6_E3M2", 6, false}, {"F4", 4, false},      {"C64", 64, false}};
  for (const Case& expected : cases) {
    const std::size_t num_bytes = 8 * expected.bits / 8;
    const std::string header = std::string(R"({"t":{"dtype":")") + expected.name +
                               R"(","shape":[2,4],"data_offsets":[0,)" + std::to_string(num_bytes) + "]}}";
    const std::string content = aligned_safetensors(header, std::string(num_bytes, 'x'));
    const Result<SafetensorsFile> file = parse_safetensors(bytes(content), "toy.safetensors");
    ASSERT_TRUE(file.has_value()) << file.error().message;
    EXPECT_EQ(file->tensors.size(), expected.supported ? 1u : 0u) << expected.name;
    EXPECT_EQ(file->unsupported.size(), expected.supported ? 0u : 1u) << expected.name;
  }
}

TEST(Safetensors, RefusesEveryTruncation) {
  const std::string whole = aligned_safetensors(kGood, "aaaabbbbbbbbbbbb");
  EXPECT_EQ(refusal(whole), "");
  for (std::size_t size = 0; size < whole.size(); ++size) {
    EXPECT_NE(refusal(std::string(whole.data(), size)), "") << size;
  }
  EXPECT_THAT(refusal(whole + "x"), HasSubstr("its tensors take 16 bytes, its data 17"));
}

TEST(Safetensors, RefusesWrongHeaders) {
  EXPECT_THAT(refusal(bytes_of(std::uint64_t{1} << 63) + "{}"), HasSubstr("9223372036854775808"));
  EXPECT_THAT(refusal(bytes_of(~std::uint64_t{0}) + "{}"), HasSubstr("header has"));
  EXPECT_THAT(refusal(bytes_of(std::uint64_t{3}) + "{}"), HasSubstr("fit into the file's 10"));
  EXPECT_EQ(refusal("{}", 0), "");
  EXPECT_THAT(refusal("", 0), HasSubstr("header is wrong"));
  EXPECT_THAT(refusal("[]", 0), HasSubstr("an array in the wrong place"));
  EXPECT_THAT(refusal("{} {}", 0), HasSubstr("header is wrong"));
  EXPECT_THAT(refusal(R"({"t":3})", 0), HasSubstr("number 3"));
  EXPECT_THAT(refusal(R"({"t":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", 0), HasSubstr("'t'"));
  EXPECT_THAT(refusal(std::string(100000, '['), 0), HasSubstr("header is wrong"));
  EXPECT_THAT(refusal(R"({"t":{"dtype":"F32","shape":[[[[1]]]],"data_offsets":[0,4]}})", 4), HasSubstr("wrong place"));
  EXPECT_THAT(refusal(R"({"t":{"dtype":"F32","shape":[1],"data_offsets":[0,4],"data_offsets":[0,4]}})", 4),
              HasSubstr("twice"));
  EXPECT_THAT(refusal(R"({"t":{"dtype":"F32","shape":[1],"data_offsets":[0,4],"more":1}})", 4),
              HasSubstr("wrong place"));
  EXPECT_THAT(refusal(R"({"t":{"dtype":"F32","shape":[1]}})", 0), HasSubstr("needs dtype, shape and data_offsets"));
  EXPECT_THAT(refusal(R"({"t":{"dtype":"F32","shape":[1],"data_offsets":[0]}})", 0), HasSubstr("two data_offsets"));
  EXPECT_THAT(refusal(R"({"t":{"dtype":"F32","shape":[1],"data_offsets":[0,4,8]}})", 4), HasSubstr("number 8"));
  EXPECT_THAT(refusal(R"({"t":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}})", 4), HasSubstr("negative"));
  EXPECT_THAT(refusal(R"({"t":{"dtype":"F32","shape":[1.0],"data_offsets":[0,4]}})", 4), HasSubstr("a fraction"));
  EXPECT_THAT(refusal(R"({"t":{"dtype":"F32","shape":[1e400],"data_offsets":[0,4]}})", 4), HasSubstr("'t'"));
  EXPECT_THAT(refusal(R"({"t":{"dtype":"F33","shape":[1],"data_offsets":[0,4]}})", 4), HasSubstr("dtype 'F33'"));
  EXPECT_THAT(refusal(R"({"__metadata__":{"x":1}})", 0), HasSubstr("number 1"));
}

TEST(Safetensors, RefusesNamesThatAppearTwice) {
  EXPECT_THAT(refusal(R"({"t":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
                      R"("t":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})",
                      8),
              AllOf(HasSubstr("'t'"), HasSubstr("twice")));
}

TEST(Safetensors, RefusesWrongSizesAndPlaces) {
  const auto one = [](const std::string& shape, const std::string& offsets, std::size_t num_bytes) {
    return refusal(R"({"t":{"dtype":"F32","shape":)" + shape + R"(,"data_offsets":)" + offsets + "}}", num_bytes);
  };
  EXPECT_EQ(one("[2]", "[0,8]", 8), "");
  EXPECT_THAT(one("[2]", "[0,4]", 4), HasSubstr("needs 8 bytes"));
  EXPECT_THAT(one("[2]", "[8,0]", 8), HasSubstr("'t'"));
  EXPECT_THAT(one("[2]", "[4,12]", 12), HasSubstr("holes"));
  EXPECT_THAT(one("[2]", "[0,8]", 4), HasSubstr("beyond the 4 bytes"));
  EXPECT_THAT(one("[4611686018427387904,4]", "[0,8]", 8), HasSubstr("overflows"));
  EXPECT_THAT(one("[9223372036854775807,2]", "[0,8]", 8), HasSubstr("overflows"));
  EXPECT_THAT(one("[18446744073709551615]", "[0,8]", 8), HasSubstr("wrong place"));
  EXPECT_THAT(refusal(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
                      R"("b":{"dtype":"F32","shape":[2],"data_offsets":[4,12]}})",
                      12),
              AllOf(HasSubstr("'b' begins at 4"), HasSubstr("overlap")));
  // Any byte may be a tensor's first.
  EXPECT_EQ(refusal(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                    R"("b":{"dtype":"F32","shape":[1],"data_offsets":[1,5]}})",
                    5),
            "");
}

TEST(SafetensorsWriter, WritesWhatTheReaderReads) {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/out.safetensors";
  Result<SafetensorsWriter> writer = SafetensorsWriter::create(path,
                                                               {{"first", device::DType::kF32, {2, 1}},
                                                                {"empty", device::DType::kF32, {0}},
                                                                {"\"x\"\n", device::DType::kBF16, {3}},
                                                                {"scale", device::DType::kF8E8M0, {2}}},
                                                               {{"source", "test"}});
  ASSERT_TRUE(writer.has_value()) << writer.error().message;
  EXPECT_FALSE(std::filesystem::exists(path));
  EXPECT_EQ(writer->bytes_missing(), 16u);
  EXPECT_TRUE(writer->append(bytes("123")).has_value());
  EXPECT_FALSE(writer->finish().has_value());
  EXPECT_FALSE(writer->append(bytes("4567abcdefghijk")).has_value());
  EXPECT_TRUE(writer->append(bytes("45678abcdefst")).has_value());
  EXPECT_TRUE(writer->finish().has_value());
  EXPECT_FALSE(std::filesystem::exists(path + ".partial"));

  std::ifstream stream(path, std::ios::binary);
  const std::string content{std::istreambuf_iterator<char>(stream), {}};
  const Result<SafetensorsFile> file = parse_safetensors(bytes(content), path);
  ASSERT_TRUE(file.has_value()) << file.error().message;
  ASSERT_EQ(file->tensors.size(), 4u);
  EXPECT_EQ(content.substr(file->tensors[0].offset, 8), "12345678");
  EXPECT_EQ(file->tensors[0].offset % 8, 0u);
  EXPECT_EQ(file->tensors[2].name, "\"x\"\n");
  EXPECT_EQ(content.substr(file->tensors[2].offset, 6), "abcdef");
  EXPECT_EQ(file->tensors[3].dtype, device::DType::kF8E8M0);
  EXPECT_EQ(content.substr(file->tensors[3].offset, 2), "st");
}

TEST(SafetensorsWriter, LeavesNothingBehindWhenGivenUp) {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/out.safetensors";
  {
    Result<SafetensorsWriter> writer = SafetensorsWriter::create(path, {{"t", device::DType::kF32, {2}}});
    ASSERT_TRUE(writer.has_value());
    const SafetensorsWriter moved = std::move(*writer);
    EXPECT_TRUE(std::filesystem::exists(path + ".partial"));
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(SafetensorsWriter, RefusesWhatTheFormatCannotHold) {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/out.safetensors";
  const auto message = [&](const std::vector<SafetensorsWriter::Tensor>& tensors) {
    const auto writer = SafetensorsWriter::create(path, tensors);
    return writer ? "" : writer.error().message;
  };
  using device::DType;
  EXPECT_THAT(message({{"t", DType::kQ4_0, {32}}}), HasSubstr("Q4_0"));
  EXPECT_THAT(message({{"t", DType::kF4E2M1, {32}}}), HasSubstr("F4_E2M1"));
  EXPECT_THAT(message({{"t", DType::kF32, {std::int64_t{1} << 62}}}), HasSubstr("overflows"));
  EXPECT_THAT(message({{"t", DType::kF32, {-1}}}), HasSubstr("overflows"));
  EXPECT_THAT(message({{"t", DType::kF32, {1}}, {"t", DType::kF32, {1}}}), HasSubstr("twice"));
  EXPECT_THAT(message({{"a", DType::kU8, {1}}, {"t", DType::kF32, {1}}}), HasSubstr("wider types first"));
  EXPECT_FALSE(SafetensorsWriter::create(folder.path() + "/none/out", {}).has_value());
}

}  // namespace
}  // namespace thalweg::weights
