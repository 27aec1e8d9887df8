#include "text/tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <ctime>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "text/small_vocabularies.h"
#include "text/test_assets.h"
#include "text/utf8.h"

namespace thalweg::text {
namespace {

namespace json = boost::json;
using Ids = std::vector<std::int32_t>;

// "a|b" merges in the order given, over single letters; <s> is special, <tool> is added and not special.
constexpr std::string_view kSmallJson = R"({
  "version": "1.0", "truncation": null, "padding": null,
  "added_tokens": [
    {"id": 9, "content": "<s>", "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": true},
    {"id": 10, "content": "<tool>", "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": false}
  ],
  "normalizer": {"type": "NFC"},
  "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true},
  "post_processor": {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
    "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
    "special_tokens": {"<s>": {"id": "<s>", "ids": [9], "tokens": ["<s>"]}}},
  "decoder": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true},
  "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "c": 2, "Ġ": 3, "ab": 4, "Ġab": 5, "<": 6, "s": 7, ">": 8},
            "merges": [["a", "b"], ["Ġ", "ab"]]}
})";

std::unique_ptr<Tokenizer> byte_level(const std::string& pre = "smollm") {
  return Tokenizer::from_gguf(byte_level_vocabulary(pre)).value();
}

std::unique_ptr<Tokenizer> sentence_piece() { return Tokenizer::from_gguf(sentence_piece_vocabulary()).value(); }

std::vector<std::string> names_of(const Tokenizer& tokenizer, const Ids& ids) {
  std::vector<std::string> names;
  for (const std::int32_t id : ids) names.emplace_back(tokenizer.token_bytes(id));
  return names;
}

TEST(JsonTokenizer, EncodesAndDecodes) {
  const auto tokenizer = Tokenizer::from_json(kSmallJson, "").value();
  EXPECT_EQ(tokenizer->vocab_size(), 11);
  EXPECT_EQ(tokenizer->encode("ab ab").value(), (Ids{9, 4, 5}));
  EXPECT_EQ(tokenizer->encode("ab ab", {.add_special_tokens = false}).value(), (Ids{4, 5}));
  EXPECT_EQ(tokenizer->decode(Ids{9, 4, 5}, true).value(), "ab ab");
  EXPECT_EQ(tokenizer->decode(Ids{9, 4, 5}, false).value(), "<s>ab ab");
  EXPECT_EQ(tokenizer->token_bytes(5), " ab");
  EXPECT_EQ(tokenizer->token_bytes(-1), "");
  EXPECT_EQ(tokenizer->token_bytes(11), "");
  EXPECT_EQ(tokenizer->token_id("Ġab"), 5);
  EXPECT_EQ(tokenizer->token_id("<s>"), 9);
  EXPECT_EQ(tokenizer->token_id("nothing"), std::nullopt);
  EXPECT_EQ(tokenizer->special_ids(), (Ids{9}));
  EXPECT_TRUE(tokenizer->adds_bos());
  EXPECT_EQ(tokenizer->bos_token_id(), 9);
}

TEST(JsonTokenizer, ConfigDecidesAboutBosAndEos) {
  const auto quiet = Tokenizer::from_json(kSmallJson, R"({"add_bos_token": false, "bos_token": "<s>"})").value();
  EXPECT_EQ(quiet->encode("ab").value(), (Ids{4}));
  EXPECT_FALSE(quiet->adds_bos());
  const auto both = Tokenizer::from_json(
                        kSmallJson, R"({"add_eos_token": true, "eos_token": {"content": "<tool>", "lstrip": false}})")
                        .value();
  EXPECT_EQ(both->encode("ab").value(), (Ids{9, 4, 10}));
  EXPECT_EQ(both->eos_token_id(), 10);
}

TEST(JsonTokenizer, SpecialTokensInTextStayText) {
  const auto tokenizer = Tokenizer::from_json(kSmallJson, "").value();
  const EncodeOptions plain{.add_special_tokens = false};
  EXPECT_EQ(tokenizer->encode("a<s>b", plain).value(), (Ids{0, 6, 7, 8, 1}));
  EXPECT_EQ(tokenizer->encode("a<s>b", {.add_special_tokens = false, .parse_special = true}).value(), (Ids{0, 9, 1}));
  EXPECT_EQ(tokenizer->encode("a<tool>b", plain).value(), (Ids{0, 10, 1}));
}

TEST(ByteLevelTokenizer, AddedTokensStayTextOnDemand) {
  const auto tokenizer = byte_level();
  const EncodeOptions parsed{.add_special_tokens = false};
  const EncodeOptions plain{.add_special_tokens = false, .parse_added = false};
  EXPECT_EQ(tokenizer->encode("<tool>", parsed).value(), (Ids{*tokenizer->token_id("<tool>")}));
  EXPECT_EQ(tokenizer->encode("<tool>", plain).value(), (Ids{'<', 't', 'o', 'o', 'l', '>'}));
  // Pieces of long texts are remembered for each way of reading them.
  std::string text;
  while (text.size() < 8192) text += "a word <tool> and ";
  for (const EncodeOptions& options : {parsed, plain, parsed, plain}) {
    EncodeOptions anew = options;
    anew.reuse_recent = false;
    EXPECT_EQ(tokenizer->encode(text, options).value(), tokenizer->encode(text, anew).value());
  }
}

TEST(JsonTokenizer, ReportsWhatIsWrong) {
  const auto message = [](std::string_view text, std::string_view config = "") {
    const auto tokenizer = Tokenizer::from_json(text, config);
    return tokenizer ? std::string("no error") : tokenizer.error().message;
  };
  EXPECT_THAT(message("{"), testing::HasSubstr("tokenizer.json: EOF"));
  EXPECT_THAT(message("{}"), testing::HasSubstr("missing field `model`"));
  EXPECT_THAT(message(kSmallJson, "[1"), testing::HasSubstr("tokenizer_config.json"));
  std::string text(kSmallJson);
  text.replace(text.find("\"id\": 10"), 8, "\"id\": 4000000000");
  EXPECT_THAT(message(text), testing::HasSubstr("4000000001 ids"));
  text = kSmallJson;
  const std::size_t decoder = text.find(R"("decoder": {"type": "ByteLevel")");
  text.replace(decoder, text.find('}', decoder) - decoder,
               R"("decoder": {"type": "CTC", "pad_token": "a", "word_delimiter_token": "b", "cleanup": true)");
  EXPECT_THAT(message(text), testing::HasSubstr("CTC"));
}

TEST(ByteLevelTokenizer, MergesInRankOrderWithinWords) {
  const auto tokenizer = byte_level();
  const EncodeOptions plain{.add_special_tokens = false};
  const auto names = [&](std::string_view text) {
    return names_of(*tokenizer, tokenizer->encode(text, plain).value());
  };
  EXPECT_THAT(names("the hello at 12"), testing::ElementsAre("the", " hello", " at", " ", "1", "2"));
  EXPECT_THAT(names(" there"), testing::ElementsAre(" the", "re"));
  EXPECT_THAT(names("\n\n\n"), testing::ElementsAre("\n\n", "\n"));
  EXPECT_EQ(tokenizer->encode("the hello").value(), tokenizer->encode("the hello", plain).value());
}

TEST(ByteLevelTokenizer, AddsBosOnlyWhenToldTo) {
  EXPECT_TRUE(byte_level("llama-bpe")->adds_bos());
  EXPECT_FALSE(byte_level("qwen2")->adds_bos());
  GgufVocabulary vocabulary = byte_level_vocabulary();
  vocabulary.add_bos = true;
  vocabulary.add_eos = true;
  const auto tokenizer = Tokenizer::from_gguf(vocabulary).value();
  const std::int32_t bos = *tokenizer->bos_token_id();
  const std::int32_t eos = *tokenizer->eos_token_id();
  EXPECT_EQ(tokenizer->encode("a").value(), (Ids{bos, 'a', eos}));
  EXPECT_EQ(tokenizer->encode("").value(), (Ids{bos, eos}));
}

TEST(ByteLevelTokenizer, AnyBytesComeBackAsValidText) {
  const auto tokenizer = byte_level();
  std::mt19937 random(3);
  for (int round = 0; round < 3000; ++round) {
    std::string text;
    for (std::size_t i = random() % 24; i > 0; --i)
      text += static_cast<char>(random() % 3 == 0 ? random() : "the <|\n"[random() % 7]);
    std::string valid;
    append_valid_utf8(text, valid);
    const Ids ids = tokenizer->encode(text).value();
    ASSERT_EQ(tokenizer->decode(ids, false).value(), valid);
  }
}

TEST(ByteLevelTokenizer, UnknownPreTokenizerStillWorks) {
  const auto tokenizer = byte_level("never-heard-of");
  EXPECT_EQ(tokenizer->decode(tokenizer->encode("the 12").value(), true).value(), "the 12");
}

TEST(SentencePieceTokenizer, SpacePrefixBytesAndScores) {
  const auto tokenizer = sentence_piece();
  const auto names = [&](std::string_view text) {
    return names_of(*tokenizer, tokenizer->encode(text, {.add_special_tokens = false}).value());
  };
  EXPECT_THAT(names("hello the"), testing::ElementsAre(" hello", " the"));
  EXPECT_THAT(names("\u00e9\u00ea"), testing::ElementsAre(" ", "\u00e9", "\xC3", "\xAA"));
  EXPECT_THAT(names("\u2581the"), testing::ElementsAre(" ", " the"));
  EXPECT_EQ(tokenizer->encode("").value(), (Ids{1}));
  EXPECT_EQ(tokenizer->decode(tokenizer->encode(" the  a\n").value(), true).value(), " the  a\n");
  GgufVocabulary vocabulary = sentence_piece_vocabulary();
  vocabulary.add_space_prefix = false;
  const auto bare = Tokenizer::from_gguf(vocabulary).value();
  EXPECT_THAT(names_of(*bare, bare->encode("the", {.add_special_tokens = false}).value()),
              testing::ElementsAre("t", "he"));
  EXPECT_EQ(bare->decode(bare->encode(" the").value(), true).value(), " the");
}

TEST(SentencePieceTokenizer, ControlNamesInTextStayText) {
  const auto tokenizer = sentence_piece();
  const Ids plain = tokenizer->encode("<s>", {.add_special_tokens = false}).value();
  EXPECT_THAT(plain, testing::Not(testing::Contains(1)));
  EXPECT_EQ(tokenizer->decode(plain, true).value(), "<s>");
  EXPECT_EQ(tokenizer->encode("<s>", {.add_special_tokens = false, .parse_special = true}).value(), (Ids{1}));
  // The name of a byte token is text as well.
  EXPECT_EQ(tokenizer->decode(tokenizer->encode("<0x41>").value(), true).value(), "<0x41>");
}

TEST(GgufTokenizer, ReportsWhatIsWrong) {
  const auto message = [](GgufVocabulary vocabulary) {
    const auto tokenizer = Tokenizer::from_gguf(std::move(vocabulary));
    return tokenizer ? std::string("no error") : tokenizer.error().message;
  };
  GgufVocabulary vocabulary = byte_level_vocabulary();
  vocabulary.model = "t5";
  EXPECT_THAT(message(vocabulary), testing::HasSubstr("is \"t5\""));
  vocabulary = byte_level_vocabulary();
  vocabulary.types.pop_back();
  EXPECT_THAT(message(vocabulary), testing::HasSubstr("token_type has 280 entries, tokenizer.ggml.tokens has 281"));
  vocabulary.merges.clear();
  vocabulary.types.clear();
  EXPECT_THAT(message(vocabulary), testing::HasSubstr("merges is missing"));
  vocabulary = sentence_piece_vocabulary();
  vocabulary.scores.clear();
  EXPECT_THAT(message(vocabulary), testing::HasSubstr("scores is missing"));
  EXPECT_THAT(message(GgufVocabulary{.model = "gpt2"}), testing::HasSubstr("tokens is empty"));
}

TEST(GgufTokenizer, OddVocabulariesDoNoHarm) {
  GgufVocabulary vocabulary = byte_level_vocabulary();
  vocabulary.tokens[3] = "";
  vocabulary.tokens[5] = vocabulary.tokens[6];
  vocabulary.tokens[7] = "\xFF\xFE";
  vocabulary.merges.push_back("no-space");
  vocabulary.merges.push_back(" ");
  vocabulary.merges.push_back("");
  vocabulary.merges.push_back("not there");
  vocabulary.bos_token_id = 1000000;
  const auto tokenizer = Tokenizer::from_gguf(vocabulary).value();
  EXPECT_EQ(tokenizer->bos_token_id(), std::nullopt);
  EXPECT_TRUE(tokenizer->encode("the \x03\x05\x07").has_value());
  EXPECT_FALSE(tokenizer->decode(Ids{281}, true).has_value());
  EXPECT_FALSE(tokenizer->decode(Ids{-1}, true).has_value());
}

// ---- long texts ----------------------------------------------------------------------------------

std::string random_prose(std::mt19937& random, std::size_t size) {
  constexpr std::string_view kWords[] = {"the",          " hello",         " at",      "\n",   " 12",     " there",
                                         "  ",           " inner",         ".",        " a b", "<|end|>", "<tool>",
                                         "\u4f60\u597d", " \u00e9t\u00e9", "\xE2\x82", "\t",   " aaaa",   " x1 y"};
  std::string text;
  while (text.size() < size) text += kWords[random() % std::size(kWords)];
  return text;
}

TEST(EncodeReuse, GivesTheSameIdsUnderRandomEdits) {
  GgufVocabulary bare = sentence_piece_vocabulary();
  bare.add_space_prefix = false;
  std::vector<std::unique_ptr<Tokenizer>> tokenizers;
  tokenizers.push_back(byte_level());
  tokenizers.push_back(byte_level("deepseek-v3"));
  tokenizers.push_back(byte_level("llama-bpe"));
  tokenizers.push_back(sentence_piece());
  tokenizers.push_back(Tokenizer::from_gguf(bare).value());
  tokenizers.push_back(Tokenizer::from_json(kSmallJson, "").value());
  std::mt19937 random(11);
  for (const auto& tokenizer : tokenizers) {
    std::string text = random_prose(random, 12000);
    for (int round = 0; round < 25; ++round) {
      for (const bool parse_special : {false, true}) {
        const EncodeOptions options{.add_special_tokens = round % 2 == 0, .parse_special = parse_special};
        EncodeOptions anew = options;
        anew.reuse_recent = false;
        ASSERT_EQ(tokenizer->encode(text, options).value(), tokenizer->encode(text, anew).value());
      }
      const std::size_t at = random() % text.size();
      switch (random() % 3) {
        case 0:
          text.insert(at, random_prose(random, 1 + random() % 40));
          break;
        case 1:
          text.erase(at, random() % 60);
          break;
        default:
          text += random_prose(random, random() % 3000);
      }
    }
  }
}

TEST(EncodeReuse, LongInputsTakeLinearTime) {
  std::vector<std::unique_ptr<Tokenizer>> tokenizers;
  tokenizers.push_back(byte_level());
  tokenizers.push_back(sentence_piece());
  for (const auto& tokenizer : tokenizers) {
    for (const std::string_view unit :
         std::initializer_list<std::string_view>{"a", " ", "\n ", "!", std::string_view("\0", 1), "\xFF", "a1 "}) {
      const auto seconds = [&](std::size_t size) {
        std::string text;
        while (text.size() < size) text += unit;
        const std::clock_t start = std::clock();  // processor time: machines are shared
        const Ids ids = tokenizer->encode(text, {.reuse_recent = false}).value();
        const double taken = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
        EXPECT_FALSE(ids.empty());
        return taken;
      };
      const double small = seconds(10'000);
      const double large = seconds(200'000);
      // 20 times the size; the square would be 400 times.
      EXPECT_LT(large, 100 * small + 0.1) << "unit " << static_cast<int>(unit[0]);
    }
  }
}

TEST(EncodeReuse, ManyThreadsShareOneTokenizer) {
  const auto tokenizer = byte_level();
  std::mt19937 random(5);
  std::vector<std::string> texts;
  std::vector<Ids> wanted;
  for (int i = 0; i < 6; ++i) {
    texts.push_back((i > 0 ? texts.back() : std::string()) + random_prose(random, 3000));
    wanted.push_back(tokenizer->encode(texts.back(), {.reuse_recent = false}).value());
  }
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (std::size_t round = 0; round < 12; ++round) {
        const std::size_t i = (round + t) % texts.size();
        ASSERT_EQ(tokenizer->encode(texts[i]).value(), wanted[i]);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// ---- against the reference tokenizers -----------------------------------------------------------

std::string from_hex(std::string_view hex) {
  std::string bytes;
  for (std::size_t i = 0; i + 1 < hex.size(); i += 2) {
    bytes += static_cast<char>(std::stoi(std::string(hex.substr(i, 2)), nullptr, 16));
  }
  return bytes;
}

class Recorded : public testing::TestWithParam<std::string> {};

TEST_P(Recorded, IdsEqualTheReference) {
  const std::string& name = GetParam();
  const bool gguf = name.ends_with("_gguf");
  std::string file = "tokenizers/" + name + "/tokenizer.json";
  if (name == "smollm2_gguf") file = "SmolLM2-135M-Instruct.Q4_1.gguf";
  if (name == "gemma3_gguf") file = "gemma-3-270m-q4_k_m.gguf";
  const std::optional<std::string> path = asset_path(file);
  if (!path) GTEST_SKIP() << "THALWEG_TEST_ASSETS is not set";
  ASSERT_TRUE(std::ifstream(*path).good()) << *path << " is missing; tools/fetch_test_assets.sh fetches it";
  const auto tokenizer =
      gguf ? Tokenizer::from_gguf(GgufTokenizerFile(*path).vocabulary) : Tokenizer::from_json(read_file(*path), "");
  ASSERT_TRUE(tokenizer.has_value()) << tokenizer.error().message;

  const json::value vectors = json::parse(read_file("src/text/testdata/tokenizer_vectors.json"));
  const json::array& texts = vectors.at("texts").as_array();
  const json::object& recorded = vectors.at("tokenizers").at(name).as_object();
  ASSERT_GT(texts.size(), 40u);
  std::string all;
  for (std::size_t i = 0; i < texts.size(); ++i) {
    const std::string text = from_hex(texts[i].as_string());
    const auto plain = json::value_to<Ids>(recorded.at("plain").at(i));
    const json::value* special = recorded.at("special").as_object().if_contains(std::to_string(i));
    EXPECT_EQ((*tokenizer)->encode(text, {.add_special_tokens = false}).value(), plain) << text;
    EXPECT_EQ((*tokenizer)->encode(text, {.add_special_tokens = false, .parse_special = true}).value(),
              special != nullptr ? json::value_to<Ids>(*special) : plain)
        << text;
    all += text;
  }
  // The whole corpus as one long text, with and without pieces.
  all += all;
  EXPECT_EQ((*tokenizer)->encode(all).value(), (*tokenizer)->encode(all, {.reuse_recent = false}).value());
}

INSTANTIATE_TEST_SUITE_P(Corpus, Recorded,
                         testing::Values("smollm2_gguf", "gemma3_gguf", "qwen3", "llama3", "gemma3", "deepseek_v3",
                                         "deepseek_v4"),
                         [](const auto& each) { return each.param; });

}  // namespace
}  // namespace thalweg::text
