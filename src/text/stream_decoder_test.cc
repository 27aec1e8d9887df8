#include "text/stream_decoder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "text/small_vocabularies.h"
#include "text/utf8.h"

namespace thalweg::text {
namespace {

/// Each id stands for given bytes; the last one is special.
class ListedTokens final : public Tokenizer {
 public:
  explicit ListedTokens(std::vector<std::string> tokens) : tokens_(std::move(tokens)) {}
  std::int32_t vocab_size() const override { return static_cast<std::int32_t>(tokens_.size()); }
  Result<std::vector<std::int32_t>> encode(std::string_view, EncodeOptions) const override {
    return fail(ErrorCode::kUnimplemented, "");
  }
  Result<std::string> decode(std::span<const std::int32_t>, bool) const override {
    return fail(ErrorCode::kUnimplemented, "");
  }
  std::string_view token_bytes(std::int32_t id) const override {
    return id < vocab_size() ? std::string_view(tokens_[static_cast<std::size_t>(id)]) : std::string_view();
  }
  bool is_special(std::int32_t id) const override { return id == vocab_size() - 1; }
  std::optional<std::int32_t> token_id(std::string_view) const override { return std::nullopt; }
  std::optional<std::int32_t> bos_token_id() const override { return std::nullopt; }
  std::optional<std::int32_t> eos_token_id() const override { return std::nullopt; }
  bool adds_bos() const override { return false; }

 private:
  std::vector<std::string> tokens_;
};

struct Streamed {
  std::vector<std::string> pieces;
  std::vector<std::int32_t> counts;
  std::optional<std::string> stop;
  std::size_t num_pushed = 0;

  std::string text() const {
    std::string all;
    for (const std::string& piece : pieces) all += piece;
    return all;
  }
};

Streamed stream(const Tokenizer& tokenizer, const std::vector<std::int32_t>& ids, StreamDecoderOptions options) {
  StreamDecoder decoder(tokenizer, std::move(options));
  Streamed streamed;
  const auto take = [&](DecodedPiece piece) {
    streamed.pieces.push_back(piece.text);
    streamed.counts.push_back(piece.num_tokens);
    streamed.stop = piece.stop;
  };
  for (const std::int32_t id : ids) {
    ++streamed.num_pushed;
    take(decoder.push(id));
    if (streamed.stop) break;
  }
  if (!streamed.stop) take(decoder.finish());
  std::int32_t total = 0;
  for (const std::int32_t count : streamed.counts) total += count;
  EXPECT_EQ(total, decoder.num_tokens());
  EXPECT_EQ(total, static_cast<std::int32_t>(streamed.num_pushed));
  return streamed;
}

/// The definition: all text, cut at the stop that begins first, among those the longest.
std::pair<std::string, std::optional<std::string>> one_shot(const std::string& text,
                                                            const std::vector<std::string>& stops, bool include_stop) {
  for (std::size_t at = 0; at < text.size(); ++at) {
    std::optional<std::string> longest;
    for (const std::string& stop : stops) {
      if (std::string_view(text).substr(at).starts_with(stop) && (!longest || stop.size() > longest->size()))
        longest = stop;
    }
    if (longest) return {text.substr(0, at + (include_stop ? longest->size() : 0)), longest};
  }
  return {text, std::nullopt};
}

TEST(StreamDecoder, HoldsOnlyWhatMayBeginAStop) {
  const ListedTokens tokens({"Z", "ZZ", "a", "b", "</s>"});
  const Streamed streamed = stream(tokens, {2, 0, 1, 3, 0}, {.stop = {"ZZZZ"}});
  EXPECT_THAT(streamed.pieces, testing::ElementsAre("a", "", "", "ZZZb", "", "Z"));
  EXPECT_THAT(streamed.counts, testing::ElementsAre(1, 0, 0, 3, 0, 1));
}

TEST(StreamDecoder, StopOfSeveralTokensAndWithinOne) {
  const ListedTokens tokens({" O", " P", " Q", "xyEND", "N", "</s>"});
  Streamed streamed = stream(tokens, {4, 0, 1, 2, 4}, {.stop = {"O P Q"}});
  EXPECT_EQ(streamed.text(), "N ");
  EXPECT_EQ(streamed.stop, "O P Q");
  EXPECT_EQ(streamed.num_pushed, 4u);
  streamed = stream(tokens, {4, 3}, {.stop = {"END"}});
  EXPECT_EQ(streamed.text(), "Nxy");
  streamed = stream(tokens, {4, 3}, {.stop = {"END"}, .include_stop = true});
  EXPECT_EQ(streamed.text(), "NxyEND");
}

TEST(StreamDecoder, FirstBeginningWinsThenLongest) {
  const ListedTokens tokens({"ab", "cd", "ef", "x", "</s>"});
  // "cd" is complete first, "abcdef" began before it.
  Streamed streamed = stream(tokens, {0, 1, 2}, {.stop = {"cd", "abcdef"}});
  EXPECT_EQ(streamed.text(), "");
  EXPECT_EQ(streamed.stop, "abcdef");
  streamed = stream(tokens, {0, 1, 3}, {.stop = {"cd", "abcdef"}});
  EXPECT_EQ(streamed.text(), "ab");
  EXPECT_EQ(streamed.stop, "cd");
  // The end decides what was still open.
  streamed = stream(tokens, {0, 1}, {.stop = {"cd", "abcdef"}});
  EXPECT_EQ(streamed.text(), "ab");
  EXPECT_EQ(streamed.stop, "cd");
  streamed = stream(tokens, {3, 0, 1}, {.stop = {"ab", "abcd", "abcdefx"}});
  EXPECT_EQ(streamed.stop, "abcd");
}

TEST(StreamDecoder, WholeCharactersAndOneReplacementAtOnce) {
  const ListedTokens tokens({"\xF0\x9F", "\x98\x80", "\xE2\x80", "\x8D", "\x80", " ", "</s>"});
  const Streamed streamed = stream(tokens, {0, 1, 2, 3, 4, 5, 0}, {});
  EXPECT_THAT(streamed.pieces, testing::ElementsAre("", "\U0001f600", "", "\u200d", "\uFFFD", " ", "", "\uFFFD"));
  EXPECT_THAT(streamed.counts, testing::ElementsAre(0, 2, 0, 2, 1, 1, 0, 1));
}

TEST(StreamDecoder, BrokenCharacterDoesNotTakeTheNextToken) {
  const ListedTokens tokens({"\xE2\x82", "a", "</s>"});
  const Streamed streamed = stream(tokens, {0, 1}, {});
  EXPECT_THAT(streamed.pieces, testing::ElementsAre("",
                                                    "\uFFFD"
                                                    "a",
                                                    ""));
  EXPECT_THAT(streamed.counts, testing::ElementsAre(0, 2, 0));
}

TEST(StreamDecoder, SpecialTokensCountWithoutText) {
  const ListedTokens tokens({"a", "</s>"});
  EXPECT_EQ(stream(tokens, {0, 1, 0}, {}).text(), "aa");
  EXPECT_EQ(stream(tokens, {0, 1, 0}, {.skip_special_tokens = false}).text(), "a</s>a");
  EXPECT_EQ(stream(tokens, {0, 77}, {}).text(), "a");
}

TEST(StreamDecoder, MinTokensLetsEarlyStopsPass) {
  const ListedTokens tokens({"a", "b", "</s>"});
  const Streamed streamed = stream(tokens, {0, 1, 0, 1}, {.stop = {"ab"}, .min_tokens = 2});
  EXPECT_EQ(streamed.text(), "ab");
  EXPECT_EQ(streamed.stop, "ab");
  EXPECT_EQ(streamed.num_pushed, 4u);
  // A stop may not reach back over the border either.
  EXPECT_EQ(stream(tokens, {0, 1}, {.stop = {"ab"}, .min_tokens = 1}).stop, std::nullopt);
}

TEST(StreamDecoder, EmptyAndBrokenStopsAreHarmless) {
  const ListedTokens tokens({"a", "</s>"});
  EXPECT_EQ(stream(tokens, {0, 0}, {.stop = {""}}).text(), "aa");
  EXPECT_EQ(stream(tokens, {0, 0}, {.stop = {"\x80", "\xC3"}}).text(), "aa");
}

TEST(StreamDecoder, RandomSequencesEqualTheDefinition) {
  std::mt19937 random(1);
  const std::vector<std::string> bytes = {"a",
                                          "b",
                                          "ab",
                                          "ba",
                                          "aab",
                                          "\u00e9",
                                          "\xC3",
                                          "\xA9",
                                          "\xF0\x9F",
                                          "\x98\x80",
                                          "\x80",
                                          " ",
                                          "\u20ac"
                                          "a",
                                          "",
                                          "b\xE2",
                                          "\x82\xAC",
                                          "</s>"};
  const ListedTokens tokens(bytes);
  for (int round = 0; round < 20000; ++round) {
    std::vector<std::int32_t> ids(random() % 14);
    std::string all;
    for (std::int32_t& id : ids) {
      id = static_cast<std::int32_t>(random() % bytes.size());
      if (!tokens.is_special(id)) all += bytes[static_cast<std::size_t>(id)];
    }
    std::string valid;
    append_valid_utf8(all, valid);
    StreamDecoderOptions options;
    options.include_stop = random() % 2 == 0;
    for (std::size_t i = random() % 4; i > 0; --i) {
      std::string stop;
      for (std::size_t k = 1 + random() % 4; k > 0; --k) {
        constexpr std::string_view kPieces[] = {"a", "b", "\u00e9", "\u20ac", " ", "\uFFFD", "\U0001f600"};
        stop += kPieces[random() % std::size(kPieces)];
      }
      options.stop.push_back(stop);
    }
    const auto [text, stop] = one_shot(valid, options.stop, options.include_stop);
    const Streamed streamed = stream(tokens, ids, options);
    ASSERT_EQ(streamed.text(), text) << "round " << round;
    ASSERT_EQ(streamed.stop, stop) << "round " << round;
    for (const std::string& piece : streamed.pieces) {
      std::string again;
      append_valid_utf8(piece, again);
      ASSERT_EQ(piece, again) << "half a character";
    }
  }
}

TEST(StreamDecoder, ContinuesAPromptSoALeadingSpaceStays) {
  const auto tokenizer = Tokenizer::from_gguf(sentence_piece_vocabulary()).value();
  const std::vector<std::int32_t> ids =
      tokenizer->encode("hello the \u00e9\U0001f600", {.add_special_tokens = false}).value();
  EXPECT_EQ(tokenizer->decode(ids, true).value(), "hello the \u00e9\U0001f600");
  EXPECT_EQ(stream(*tokenizer, ids, {}).text(), " hello the \u00e9\U0001f600");
}

}  // namespace
}  // namespace thalweg::text
