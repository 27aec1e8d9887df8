// The real vocabulary's map against the numbers that the checkpoint and an independent implementation give.
#include "text/engram_token_map.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>

#include "text/sha256_of.h"
#include "text/small_vocabularies.h"
#include "text/test_assets.h"

namespace thalweg::text {
namespace {

std::vector<std::int32_t> map_of(const Tokenizer& tokenizer) {
  Result<std::vector<std::int32_t>> map = engram_token_map(tokenizer);
  EXPECT_TRUE(map) << map.error().message;
  return map ? *map : std::vector<std::int32_t>();
}

/// The classes of `tokens`, after the 256 single bytes of the vocabulary.
std::vector<std::int32_t> classes_of(const std::vector<std::string>& tokens) {
  GgufVocabulary vocabulary = byte_level_vocabulary();
  vocabulary.tokens.resize(256);
  vocabulary.types.resize(256);
  vocabulary.merges = {byte_level_name("t") + " " + byte_level_name("h")};
  for (const std::string& token : tokens) {
    vocabulary.tokens.push_back(byte_level_name(token));
    vocabulary.types.push_back(1);
  }
  vocabulary.bos_token_id = vocabulary.eos_token_id = std::nullopt;
  const Result<std::unique_ptr<Tokenizer>> tokenizer = Tokenizer::from_gguf(std::move(vocabulary));
  EXPECT_TRUE(tokenizer) << tokenizer.error().message;
  std::vector<std::int32_t> map = map_of(**tokenizer);
  map.erase(map.begin(), map.begin() + 256);
  return map;
}

TEST(EngramTokenMap, LikeTextsShareAClass) {
  const auto classes = classes_of({"cafe", " Café", "CAFE\xCC\x81\n", "ｃａｆｅ", "cafes", "th"});
  EXPECT_EQ(classes[0], classes[1]);
  EXPECT_EQ(classes[0], classes[2]);
  EXPECT_EQ(classes[0], classes[3]);
  EXPECT_NE(classes[0], classes[4]);
  EXPECT_EQ(classes[5], classes[4] + 1);  // numbered by first appearance
}

TEST(EngramTokenMap, SpacesAreOneClassAndPartsOfCharactersStandAlone) {
  const auto classes = classes_of({" ", "  ", "\n\t", "\xE2\x82", "\xE2\x82 ", " \xE2\x82", "\xC2\xA0", "\xCC\x81"});
  EXPECT_EQ(classes[1], classes[0]);
  EXPECT_EQ(classes[2], classes[0]);
  EXPECT_EQ(classes[6], classes[0]);  // a no-break space is a space under NFKC
  EXPECT_NE(classes[3], classes[4]);  // broken ones are compared byte by byte
  EXPECT_NE(classes[3], classes[5]);
  EXPECT_NE(classes[7], classes[0]);  // an accent alone would be empty and keeps its text
}

TEST(EngramTokenMap, DeepseekVocabulary) {
  const auto path = asset_path("tokenizers/deepseek_v4/tokenizer.json");
  if (!path) GTEST_SKIP() << "THALWEG_TEST_ASSETS is not set";
  const Result<std::unique_ptr<Tokenizer>> tokenizer = Tokenizer::from_json(read_file(*path), "");
  ASSERT_TRUE(tokenizer) << tokenizer.error().message;
  const std::vector<std::int32_t> map = map_of(**tokenizer);
  ASSERT_EQ(map.size(), 129280U);
  EXPECT_EQ(*std::ranges::max_element(map) + 1, 99092);  // engram_compressed_vocab_size
  EXPECT_EQ(map[2], 2);                                  // the padding token
  // Recorded from the Python package `tokenizers`, as little-endian int32.
  EXPECT_EQ(sha256_of({reinterpret_cast<const char*>(map.data()), map.size() * sizeof(map[0])}),
            "c60a86322ec17b4142bfef3c57a8d81fb428550cdf487f88a4320cb59fe46481");
}

}  // namespace
}  // namespace thalweg::text
