// Text from a file, made fit for messages and terminals.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace thalweg::weights {

/// At most `max_bytes` of `text` (then "..."), never half a character; control characters and bytes that
/// are not UTF-8 become \xNN.
std::string printable(std::string_view text, std::size_t max_bytes = 120);

}  // namespace thalweg::weights
