#include "text/utf8.h"

#include <algorithm>

namespace thalweg::text {
namespace {

struct LeadByte {
  std::size_t size;         // of the whole character; 0: no character begins so
  unsigned char low, high;  // range of the second byte
};

LeadByte lead_byte(unsigned char byte) {
  if (byte < 0x80) return {1, 0, 0};
  if (byte >= 0xC2 && byte <= 0xDF) return {2, 0x80, 0xBF};
  if (byte == 0xE0) return {3, 0xA0, 0xBF};
  if (byte == 0xED) return {3, 0x80, 0x9F};
  if (byte >= 0xE1 && byte <= 0xEF) return {3, 0x80, 0xBF};
  if (byte == 0xF0) return {4, 0x90, 0xBF};
  if (byte >= 0xF1 && byte <= 0xF3) return {4, 0x80, 0xBF};
  if (byte == 0xF4) return {4, 0x80, 0x8F};
  return {0, 0, 0};
}

}  // namespace

Utf8Step next_utf8(std::string_view text) {
  const LeadByte lead = lead_byte(static_cast<unsigned char>(text[0]));
  if (lead.size == 0) return {1, Utf8Step::Kind::kBroken};
  for (std::size_t i = 1; i < lead.size; ++i) {
    if (i == text.size()) return {i, Utf8Step::Kind::kUnfinished};
    const auto byte = static_cast<unsigned char>(text[i]);
    const bool continues = i == 1 ? byte >= lead.low && byte <= lead.high : byte >= 0x80 && byte <= 0xBF;
    if (!continues) return {i, Utf8Step::Kind::kBroken};
  }
  return {lead.size, Utf8Step::Kind::kCharacter};
}

void append_valid_utf8(std::string_view text, std::string& out) {
  while (!text.empty()) {
    std::size_t valid = 0;
    Utf8Step step;
    while (valid < text.size()) {
      step = next_utf8(text.substr(valid));
      if (step.kind != Utf8Step::Kind::kCharacter) break;
      valid += step.size;
    }
    out.append(text.substr(0, valid));
    text.remove_prefix(valid);
    if (text.empty()) return;
    out.append(kReplacementCharacter);
    text.remove_prefix(step.size);
  }
}

std::size_t finished_utf8_size(std::string_view text) {
  const std::size_t window = std::min<std::size_t>(text.size(), 3);
  for (std::size_t back = 1; back <= window; ++back) {
    const std::string_view tail = text.substr(text.size() - back);
    const Utf8Step step = next_utf8(tail);
    if (step.kind == Utf8Step::Kind::kUnfinished && step.size == back) return text.size() - back;
    if (lead_byte(static_cast<unsigned char>(tail[0])).size != 0) break;  // a character begins here and is decided
  }
  return text.size();
}

}  // namespace thalweg::text
