// Vocabularies small enough to write down, for tests.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer.h"

namespace thalweg::text {

inline void append_utf8(unsigned code, std::string& out) {
  if (code < 0x80) {
    out += static_cast<char>(code);
  } else {
    out += static_cast<char>(0xC0 | code >> 6);
    out += static_cast<char>(0x80 | (code & 0x3F));
  }
}

/// What a byte-level vocabulary writes for `bytes`.
inline std::string byte_level_name(std::string_view bytes) {
  std::string name;
  for (const char c : bytes) {
    const unsigned byte = static_cast<unsigned char>(c);
    const bool printable = (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
    unsigned code = byte;
    if (byte <= 0x20) code = 0x100 + byte;
    if (byte >= 0x7F && byte <= 0xA0) code = 0x121 + byte - 0x7F;
    if (byte == 0xAD) code = 0x143;
    append_utf8(printable ? byte : code, name);
  }
  return name;
}

/// Ids 0 to 255 are the bytes, then the results of `merges` ("left right" in plain bytes, split at '|'),
/// then <|start|>, <|end|> (control) and <tool> (user defined).
inline GgufVocabulary byte_level_vocabulary(std::string pre = "smollm") {
  GgufVocabulary vocabulary;
  vocabulary.model = "gpt2";
  vocabulary.pre = std::move(pre);
  for (int byte = 0; byte < 256; ++byte) {
    const char c = static_cast<char>(byte);
    vocabulary.tokens.push_back(byte_level_name({&c, 1}));
    vocabulary.types.push_back(1);
  }
  for (const char* merge : {"t|h",           "th|e",      " |the", "i|n",  "e|r",   " |a",    "o|n",     "r|e",
                            "a|t",           " a|t",      "l|l",   "ll|o", "h|e",   "he|llo", " |hello", "\xF0|\x9F",
                            "\xF0\x9F|\x98", "\xE2|\x82", "1|2",   "a|a",  "aa|aa", "\n|\n"}) {
    const std::string_view line = merge;
    const std::size_t bar = line.find('|');
    const std::string left = byte_level_name(line.substr(0, bar));
    const std::string right = byte_level_name(line.substr(bar + 1));
    vocabulary.merges.push_back(left + " " + right);
    vocabulary.tokens.push_back(left + right);
    vocabulary.types.push_back(1);
  }
  for (const auto& [name, type] : {std::pair{"<|start|>", 3}, std::pair{"<|end|>", 3}, std::pair{"<tool>", 4}}) {
    vocabulary.tokens.push_back(name);
    vocabulary.types.push_back(type);
  }
  vocabulary.bos_token_id = static_cast<std::int32_t>(vocabulary.tokens.size()) - 3;
  vocabulary.eos_token_id = static_cast<std::int32_t>(vocabulary.tokens.size()) - 2;
  return vocabulary;
}

/// SentencePiece-style: <unk>, <s>, </s>, 256 bytes, letters and a few words.
inline GgufVocabulary sentence_piece_vocabulary() {
  GgufVocabulary vocabulary;
  vocabulary.model = "llama";
  const auto add = [&](std::string token, float score, std::int32_t type) {
    vocabulary.tokens.push_back(std::move(token));
    vocabulary.scores.push_back(score);
    vocabulary.types.push_back(type);
  };
  add("<unk>", 0, 2);
  add("<s>", 0, 3);
  add("</s>", 0, 3);
  for (int byte = 0; byte < 256; ++byte) {
    constexpr std::string_view kDigits = "0123456789ABCDEF";
    add(std::string("<0x") + kDigits[byte / 16] + kDigits[byte % 16] + ">", 0, 6);
  }
  float score = -1;
  for (const char* piece :
       {"\u2581t", "he", "\u2581the", "in", "er", "\u2581a", "ll", "llo", "hello", "\u2581hello", "\u2581\u2581"}) {
    add(piece, score--, 1);
  }
  add("\u2581", score--, 1);
  for (char c = 'a'; c <= 'z'; ++c) add(std::string(1, c), score--, 1);
  add("\u00e9", score--, 1);
  vocabulary.bos_token_id = 1;
  vocabulary.eos_token_id = 2;
  vocabulary.unknown_token_id = 0;
  return vocabulary;
}

}  // namespace thalweg::text
