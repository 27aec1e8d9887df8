// The token map of DeepSeek-V4.1's Engram: ids to the classes that its tables are hashed by.
#pragma once

#include <cstdint>
#include <vector>

#include "text/tokenizer.h"
#include "thalweg/error.h"

namespace thalweg::text {

/// [vocab_size] the class of each id. Tokens whose texts are equal but for case, accents, compatibility forms and
/// space around them share a class; tokens that hold part of a character have one of their own. Classes are numbered
/// by their first token. A checkpoint names the number of classes it was trained with: another number means another
/// tokenizer. Takes some tenths of a second for a large vocabulary; made once at load.
Result<std::vector<std::int32_t>> engram_token_map(const Tokenizer& tokenizer);

}  // namespace thalweg::text
