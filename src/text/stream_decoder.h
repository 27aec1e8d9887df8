// Token ids of one sequence to text, as they come: whole characters only, stop strings held back.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer.h"

namespace thalweg::text {

struct StreamDecoderOptions {
  std::vector<std::string> stop;  // empty ones are ignored
  bool include_stop = false;
  bool skip_special_tokens = true;
  std::int32_t min_tokens = 0;  // stop strings are not looked for in the text of that many first tokens
};

/// What one push released.
struct DecodedPiece {
  std::string text;                 // may be empty while text is held back
  std::int32_t num_tokens = 0;      // tokens whose text is now complete in what was released so far and
                                    // were not counted before; at the end all that are left
  std::optional<std::string> stop;  // the stop string that ended the sequence; push no more
};

/// One sequence's text state; owned by the thread that serves the sequence.
/// The stop that begins first in the text wins, among those the longest (api section 2.14): while an
/// earlier or longer one can still come true, text is held and tokens are taken. Stops never match
/// inside the prompt. Bytes that cannot become a character become U+FFFD at once. The text continues a
/// prompt, so a leading space stays.
class StreamDecoder {
 public:
  StreamDecoder(const Tokenizer& tokenizer, StreamDecoderOptions options);

  /// Ids beyond the tokenizer's vocabulary (rows that pad the model's head) stand for nothing.
  DecodedPiece push(std::int32_t token_id);

  /// The end for any other reason than a stop string: releases what is held. A stop string that was
  /// complete and waited for a longer one is reported here.
  DecodedPiece finish();

  std::int32_t num_tokens() const { return num_tokens_; }

 private:
  struct Match {
    std::size_t hold_from = 0;          // text before is free of stops
    const std::string* stop = nullptr;  // begins at hold_from
  };

  void add_bytes(std::string_view bytes);
  Match find_stop(bool at_end) const;
  DecodedPiece release(bool at_end);

  const Tokenizer& tokenizer_;
  StreamDecoderOptions options_;
  std::string pending_bytes_;            // an incomplete character
  std::string held_text_;                // complete characters that may begin a stop string
  std::vector<std::size_t> token_ends_;  // per uncounted token: end of its text, in bytes from held_text_;
                                         // kOpen while its last character is incomplete
  std::int32_t num_tokens_ = 0;
  std::int32_t num_pushed_ = 0;
  bool ended_ = false;
};

}  // namespace thalweg::text
