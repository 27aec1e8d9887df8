// Text to token ids and back.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "thalweg/error.h"

namespace thalweg::text {

/// A tokenizer as GGUF metadata holds it (`tokenizer.ggml.*`); the app copies it out of the file.
struct GgufVocabulary {
  std::string model;  // "gpt2" (byte-level BPE) or "llama" (SentencePiece-style)
  std::string pre;    // pre-tokenizer name, "smollm", "qwen2", "llama-bpe", ...
  std::vector<std::string> tokens;
  std::vector<float> scores;        // empty or one per token
  std::vector<std::int32_t> types;  // empty or one per token; GGML's: 1 normal, 3 control, 4 user defined, 6 byte
  std::vector<std::string> merges;
  std::optional<std::int32_t> bos_token_id, eos_token_id, unknown_token_id;
  std::optional<bool> add_bos, add_eos, add_space_prefix;
};

struct EncodeOptions {
  bool add_special_tokens = true;  // BOS/EOS as the tokenizer's own settings say
  bool parse_special = false;      // false: "<|im_end|>" in the text stays text
  bool parse_added = true;         // false: added tokens that are not special stay text too
  bool reuse_recent = true;        // false: encodes all of the text anew; the ids are the same
};

/// Immutable after construction; all functions may be called from any thread.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  /// `config_json` is tokenizer_config.json, may be empty.
  static Result<std::unique_ptr<Tokenizer>> from_json(std::string_view tokenizer_json, std::string_view config_json);
  static Result<std::unique_ptr<Tokenizer>> from_gguf(GgufVocabulary vocabulary);

  virtual std::int32_t vocab_size() const = 0;

  /// Text may hold any bytes: invalid UTF-8 is replaced by U+FFFD first. Linear in the length. Long
  /// texts that share a beginning with a recent one are encoded from near where they part.
  virtual Result<std::vector<std::int32_t>> encode(std::string_view text, EncodeOptions options = {}) const = 0;

  /// Valid UTF-8; ids out of range are an error. The inverse of encode: where that puts a space before
  /// a text, one leading space is taken away.
  virtual Result<std::string> decode(std::span<const std::int32_t> ids, bool skip_special_tokens) const = 0;

  /// The bytes one token stands for inside a text (a space for "▁", one byte for "<0x0A>"); empty for
  /// ids that stand for nothing. Special tokens give their own name.
  virtual std::string_view token_bytes(std::int32_t id) const = 0;
  virtual bool is_special(std::int32_t id) const = 0;
  virtual std::optional<std::int32_t> token_id(std::string_view token) const = 0;

  virtual std::optional<std::int32_t> bos_token_id() const = 0;
  virtual std::optional<std::int32_t> eos_token_id() const = 0;
  virtual bool adds_bos() const = 0;

  /// All ids that are special and have a name, ascending.
  virtual std::vector<std::int32_t> special_ids() const;
};

}  // namespace thalweg::text
