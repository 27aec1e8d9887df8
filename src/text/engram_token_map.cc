#include "text/engram_token_map.h"

#include "text/rust_border.h"

namespace thalweg::text {

Result<std::vector<std::int32_t>> engram_token_map(const Tokenizer& tokenizer) {
  std::vector<tw_slice> tokens;
  tokens.reserve(static_cast<std::size_t>(tokenizer.vocab_size()));
  for (std::int32_t id = 0; id < tokenizer.vocab_size(); ++id) tokens.push_back(slice_of(tokenizer.token_bytes(id)));
  tw_ids classes{};
  tw_buffer error{};
  if (!tw_engram_classes(tokens.data(), tokens.size(), &classes, &error)) {
    return fail(ErrorCode::kInternal, "Engram token map: " + take_text(error));
  }
  return take_ids(classes);
}

}  // namespace thalweg::text
