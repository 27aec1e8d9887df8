#include "text/utf8.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <string_view>

namespace thalweg::text {
namespace {

std::string valid(std::string_view text) {
  std::string out;
  append_valid_utf8(text, out);
  return out;
}

constexpr const char* kBad = "\xEF\xBF\xBD";

TEST(Utf8, KeepsWholeCharacters) {
  const std::string text = "a\u00e9\u20ac\U0001f600\U0010ffff";
  EXPECT_EQ(valid(text), text);
  EXPECT_EQ(valid(std::string("\0b", 2)), std::string("\0b", 2));
}

// The examples of Unicode 3.9, tables 3-8 to 3-11.
TEST(Utf8, ReplacesMaximalSubparts) {
  const std::string b = kBad;
  EXPECT_EQ(valid("\xC0\xAF\xE0\x80\xBF\xF0\x81\x82\x41"), b + b + b + b + b + b + b + b + "A");
  EXPECT_EQ(valid("\xED\xA0\x80\xED\xBF\xBF\xED\xAF\x41"), b + b + b + b + b + b + b + b + "A");
  EXPECT_EQ(valid("\xF4\x91\x92\x93\xFF\x41\x80\xBF\x42"), b + b + b + b + b + "A" + b + b + "B");
  EXPECT_EQ(valid("\xE1\x80\xE2\xF0\x91\x92\xF1\xBF\x41"), b + b + b + b + "A");
}

TEST(Utf8, FinishedSizeStopsBeforeAnOpenCharacter) {
  EXPECT_EQ(finished_utf8_size(""), 0u);
  EXPECT_EQ(finished_utf8_size("ab"), 2u);
  EXPECT_EQ(finished_utf8_size("ab\xE2\x82"), 2u);
  EXPECT_EQ(finished_utf8_size("ab\xF0\x9F\x98"), 2u);
  EXPECT_EQ(finished_utf8_size("ab\xF0\x9F\x98\x80"), 6u);
  EXPECT_EQ(finished_utf8_size("\x80\x80\x80"), 3u);  // can never become a character
  EXPECT_EQ(finished_utf8_size("\xED\xA0"), 2u);      // a surrogate's beginning cannot either
  EXPECT_EQ(finished_utf8_size("\xC3\xC3"), 1u);
}

TEST(Utf8, CutsAnywhereGiveTheSameText) {
  std::mt19937 random(7);
  const std::string_view alphabet("a\x80\xBF\xC2\xC3\xA9\xE0\xE2\x82\xAC\xED\xA0\xF0\x9F\x98\xF4\x90\xFF");
  for (int round = 0; round < 20000; ++round) {
    std::string text;
    const std::size_t size = random() % 12;
    for (std::size_t i = 0; i < size; ++i) text += alphabet[random() % alphabet.size()];
    std::string streamed;
    std::string open;
    for (const char byte : text) {
      open += byte;
      const std::size_t finished = finished_utf8_size(open);
      append_valid_utf8(std::string_view(open).substr(0, finished), streamed);
      open.erase(0, finished);
      ASSERT_LE(open.size(), 3u);
    }
    append_valid_utf8(open, streamed);
    ASSERT_EQ(streamed, valid(text));
  }
}

}  // namespace
}  // namespace thalweg::text
