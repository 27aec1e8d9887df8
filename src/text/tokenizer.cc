#include "text/tokenizer.h"

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "text/encode_cache.h"
#include "text/rust_border.h"
#include "text/utf8.h"

namespace thalweg::text {
namespace {

// Pieces of a long text are about this long; texts shorter than two of them are not kept.
constexpr std::size_t kPieceBytes = 1024;
// About a million tokens of English.
constexpr std::size_t kCacheBytes = 8 << 20;

std::int32_t literals_of(const EncodeOptions& options) {
  if (options.parse_special) return TW_LITERALS_ALL;
  return options.parse_added ? TW_LITERALS_NOT_SPECIAL : TW_LITERALS_NONE;
}

class LibraryTokenizer final : public Tokenizer {
 public:
  explicit LibraryTokenizer(tw_tokenizer* tokenizer) : tokenizer_(tokenizer), facts_(tw_tokenizer_facts(tokenizer)) {
    for (std::int32_t id = 0; id < facts_.vocab_size; ++id) {
      if (is_special(id) && !token_bytes(id).empty()) special_ids_.push_back(id);
    }
  }
  ~LibraryTokenizer() override { tw_tokenizer_free(tokenizer_); }
  LibraryTokenizer(const LibraryTokenizer&) = delete;
  LibraryTokenizer& operator=(const LibraryTokenizer&) = delete;

  std::int32_t vocab_size() const override { return facts_.vocab_size; }

  Result<std::vector<std::int32_t>> encode(std::string_view text, EncodeOptions options) const override {
    if (!options.reuse_recent || !facts_.splits_between_words || text.size() < 2 * kPieceBytes) {
      return encode_whole(text, options);
    }
    // What the tokenizer puts around a text is put around the joined pieces.
    Result<std::vector<std::int32_t>> around = std::vector<std::int32_t>();
    if (options.add_special_tokens) around = encode_whole({}, options);
    if (!around) return around;
    std::vector<std::int32_t> ids;
    ids.reserve(text.size() / 3);
    for (std::size_t begin = 0; begin < text.size();) {
      const std::size_t end = piece_end(text, begin, kPieceBytes);
      const Status appended = append_piece(text.substr(begin, end - begin), options, end < text.size(), ids);
      if (!appended) return std::unexpected(appended.error());
      begin = end;
    }
    if (!around->empty()) {
      const std::size_t num_before = facts_.num_prefix;
      ids.insert(ids.end(), around->begin() + num_before, around->end());
      ids.insert(ids.begin(), around->begin(), around->begin() + num_before);
    }
    return ids;
  }

  Result<std::string> decode(std::span<const std::int32_t> ids, bool skip_special_tokens) const override {
    std::string bytes;
    for (const std::int32_t id : ids) {
      if (id < 0 || id >= facts_.vocab_size) {
        return fail(ErrorCode::kInvalidArgument,
                    fmt::format("token id {} is outside the vocabulary; ids are 0 to {}", id, facts_.vocab_size - 1));
      }
      if (!skip_special_tokens || !is_special(id)) bytes.append(token_bytes(id));
    }
    std::string_view rest = bytes;
    if (facts_.strips_leading_space && rest.starts_with(' ')) rest.remove_prefix(1);
    std::string text;
    text.reserve(rest.size());
    append_valid_utf8(rest, text);
    return text;
  }

  std::string_view token_bytes(std::int32_t id) const override {
    if (id < 0 || id >= facts_.vocab_size) return {};
    const std::uint32_t begin = facts_.token_ends[id];
    return {reinterpret_cast<const char*>(facts_.token_bytes) + begin, facts_.token_ends[id + 1] - begin};
  }

  bool is_special(std::int32_t id) const override {
    return id >= 0 && id < facts_.vocab_size && (facts_.token_flags[id] & TW_TOKEN_SPECIAL) != 0;
  }

  std::optional<std::int32_t> token_id(std::string_view token) const override {
    return known(tw_tokenizer_find(tokenizer_, slice_of(token)));
  }

  std::optional<std::int32_t> bos_token_id() const override { return known(facts_.bos); }
  std::optional<std::int32_t> eos_token_id() const override { return known(facts_.eos); }
  bool adds_bos() const override { return facts_.adds_bos; }
  std::vector<std::int32_t> special_ids() const override { return special_ids_; }

 private:
  static std::optional<std::int32_t> known(std::int32_t id) {
    return id < 0 ? std::nullopt : std::optional<std::int32_t>(id);
  }

  Result<std::vector<std::int32_t>> encode_whole(std::string_view text, EncodeOptions options) const {
    tw_ids ids{};
    tw_buffer error{};
    if (!tw_tokenizer_encode(tokenizer_, slice_of(text), options.add_special_tokens, literals_of(options), &ids,
                             &error)) {
      return fail(ErrorCode::kInternal, "tokenizer: " + take_text(error));
    }
    return take_ids(ids);
  }

  Status append_piece(std::string_view piece, EncodeOptions options, bool keep, std::vector<std::int32_t>& out) const {
    const auto variant = static_cast<char>('0' + literals_of(options));
    if (keep && cache_.append(piece, variant, out)) return {};
    options.add_special_tokens = false;
    Result<std::vector<std::int32_t>> ids = encode_whole(piece, options);
    if (!ids) return std::unexpected(std::move(ids.error()));
    out.insert(out.end(), ids->begin(), ids->end());
    if (keep) cache_.insert(piece, variant, std::move(*ids));
    return {};
  }

  tw_tokenizer* const tokenizer_;
  const tw_tokenizer_facts_t facts_;
  std::vector<std::int32_t> special_ids_;
  mutable EncodeCache cache_{kCacheBytes};
};

std::vector<tw_slice> slices_of(const std::vector<std::string>& texts) {
  std::vector<tw_slice> slices;
  slices.reserve(texts.size());
  for (const std::string& each : texts) slices.push_back(slice_of(each));
  return slices;
}

std::int8_t three_valued(std::optional<bool> flag) { return flag ? static_cast<std::int8_t>(*flag) : std::int8_t{-1}; }

}  // namespace

std::vector<std::int32_t> Tokenizer::special_ids() const {
  std::vector<std::int32_t> ids;
  for (std::int32_t id = 0; id < vocab_size(); ++id) {
    if (is_special(id) && !token_bytes(id).empty()) ids.push_back(id);
  }
  return ids;
}

Result<std::unique_ptr<Tokenizer>> Tokenizer::from_json(std::string_view tokenizer_json, std::string_view config_json) {
  tw_buffer error{};
  tw_tokenizer* tokenizer = tw_tokenizer_from_json(slice_of(tokenizer_json), slice_of(config_json), &error);
  if (tokenizer == nullptr) return fail(ErrorCode::kInvalidArgument, take_text(error));
  return std::make_unique<LibraryTokenizer>(tokenizer);
}

Result<std::unique_ptr<Tokenizer>> Tokenizer::from_gguf(GgufVocabulary vocabulary) {
  const std::vector<tw_slice> tokens = slices_of(vocabulary.tokens);
  const std::vector<tw_slice> merges = slices_of(vocabulary.merges);
  const tw_gguf_vocabulary arrays{
      .model = slice_of(vocabulary.model),
      .pre = slice_of(vocabulary.pre),
      .tokens = tokens.data(),
      .num_tokens = tokens.size(),
      .scores = vocabulary.scores.data(),
      .num_scores = vocabulary.scores.size(),
      .types = vocabulary.types.data(),
      .num_types = vocabulary.types.size(),
      .merges = merges.data(),
      .num_merges = merges.size(),
      .bos = vocabulary.bos_token_id.value_or(-1),
      .eos = vocabulary.eos_token_id.value_or(-1),
      .unknown = vocabulary.unknown_token_id.value_or(-1),
      .add_bos = three_valued(vocabulary.add_bos),
      .add_eos = three_valued(vocabulary.add_eos),
      .add_space_prefix = three_valued(vocabulary.add_space_prefix),
  };
  tw_buffer warning{};
  tw_buffer error{};
  tw_tokenizer* tokenizer = tw_tokenizer_from_gguf(&arrays, &warning, &error);
  const std::string warning_text = take_text(warning);
  if (tokenizer == nullptr) return fail(ErrorCode::kInvalidArgument, "GGUF tokenizer: " + take_text(error));
  if (!warning_text.empty()) log(LogLevel::kWarning, "tokenizer: {}", warning_text);
  return std::make_unique<LibraryTokenizer>(tokenizer);
}

}  // namespace thalweg::text
