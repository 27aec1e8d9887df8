// A rendered prompt whose special tokens are known by their place, so that the same letters elsewhere stay text.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer.h"
#include "thalweg/error.h"

namespace thalweg::text {

struct PromptText {
  struct Span {
    std::size_t begin = 0, end = 0;  // bytes of `text`
  };

  std::string text;
  std::vector<Span> specials;  // ascending, apart; each is the name of one token

  void add(std::string_view plain) { text.append(plain); }
  void add_special(std::string_view name) {
    specials.push_back({text.size(), text.size() + name.size()});
    text.append(name);
  }
};

/// Each stretch between special tokens is encoded for itself, as `options` say.
Result<std::vector<std::int32_t>> encode_prompt(const PromptText& prompt, const Tokenizer& tokenizer,
                                                const EncodeOptions& options);

}  // namespace thalweg::text
