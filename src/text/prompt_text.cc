#include "text/prompt_text.h"

#include <fmt/format.h>

#include <optional>
#include <utility>

namespace thalweg::text {

Result<std::vector<std::int32_t>> encode_prompt(const PromptText& prompt, const Tokenizer& tokenizer,
                                                const EncodeOptions& options) {
  const std::string_view text = prompt.text;
  std::vector<std::int32_t> ids;
  std::size_t done = 0;
  const auto add_plain = [&](std::size_t end) -> Status {
    if (end == done) return {};
    Result<std::vector<std::int32_t>> part = tokenizer.encode(text.substr(done, end - done), options);
    if (!part) return std::unexpected(std::move(part.error()));
    ids.insert(ids.end(), part->begin(), part->end());
    return {};
  };
  for (const PromptText::Span& special : prompt.specials) {
    if (Status added = add_plain(special.begin); !added) return std::unexpected(std::move(added.error()));
    const std::string_view name = text.substr(special.begin, special.end - special.begin);
    const std::optional<std::int32_t> id = tokenizer.token_id(name);
    if (!id) return fail(ErrorCode::kInternal, fmt::format("the tokenizer has no token \"{}\"", name));
    ids.push_back(*id);
    done = special.end;
  }
  if (Status added = add_plain(text.size()); !added) return std::unexpected(std::move(added.error()));
  return ids;
}

}  // namespace thalweg::text
