#include "text/stream_decoder.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "text/utf8.h"

namespace thalweg::text {
namespace {

constexpr std::size_t kOpen = static_cast<std::size_t>(-1);

bool begins_character(char byte) { return (static_cast<unsigned char>(byte) & 0xC0) != 0x80; }

}  // namespace

StreamDecoder::StreamDecoder(const Tokenizer& tokenizer, StreamDecoderOptions options)
    : tokenizer_(tokenizer), options_(std::move(options)) {
  for (std::string& stop : options_.stop) {
    std::string valid;
    append_valid_utf8(stop, valid);
    stop = std::move(valid);
  }
  std::erase_if(options_.stop, [](const std::string& stop) { return stop.empty(); });
}

DecodedPiece StreamDecoder::push(std::int32_t token_id) {
  CHECK(!ended_);
  ++num_pushed_;
  const bool dropped = options_.skip_special_tokens && tokenizer_.is_special(token_id);
  add_bytes(dropped ? std::string_view() : tokenizer_.token_bytes(token_id));
  token_ends_.push_back(pending_bytes_.empty() ? held_text_.size() : kOpen);
  return release(/*at_end=*/false);
}

DecodedPiece StreamDecoder::finish() {
  CHECK(!ended_);
  if (!pending_bytes_.empty()) held_text_.append(kReplacementCharacter);
  pending_bytes_.clear();
  return release(/*at_end=*/true);
}

void StreamDecoder::add_bytes(std::string_view bytes) {
  if (bytes.empty()) return;
  const bool had_open = !pending_bytes_.empty();
  const std::size_t first_new = held_text_.size();
  pending_bytes_.append(bytes);
  const std::size_t finished = finished_utf8_size(pending_bytes_);
  if (finished == 0) return;
  append_valid_utf8(std::string_view(pending_bytes_).substr(0, finished), held_text_);
  pending_bytes_.erase(0, finished);
  if (!had_open) return;
  // The first new character is the one that the open tokens end in, whole or replaced.
  std::size_t end = first_new + 1;
  while (end < held_text_.size() && !begins_character(held_text_[end])) ++end;
  std::ranges::replace(token_ends_, kOpen, end);
}

// The first place where a stop is complete, or may yet become one.
StreamDecoder::Match StreamDecoder::find_stop(bool at_end) const {
  for (std::size_t at = 0; at < held_text_.size(); ++at) {
    if (!begins_character(held_text_[at])) continue;
    const std::string_view rest = std::string_view(held_text_).substr(at);
    const std::string* longest = nullptr;
    bool may_come = false;
    for (const std::string& stop : options_.stop) {
      if (stop.front() != rest.front()) continue;
      if (rest.starts_with(stop)) {
        if (longest == nullptr || stop.size() > longest->size()) longest = &stop;
      } else if (!at_end && std::string_view(stop).starts_with(rest)) {
        may_come = true;
      }
    }
    // `rest` is no longer than a stop that may come, so that one is longer than any complete one.
    if (may_come) return {at, nullptr};
    if (longest != nullptr) return {at, longest};
  }
  return {held_text_.size(), nullptr};
}

DecodedPiece StreamDecoder::release(bool at_end) {
  DecodedPiece piece;
  Match match{held_text_.size(), nullptr};
  if (!options_.stop.empty() && num_pushed_ > options_.min_tokens) match = find_stop(at_end);

  std::size_t released = match.hold_from;
  if (match.stop != nullptr) {
    piece.stop = *match.stop;
    if (options_.include_stop) released += match.stop->size();
  }
  piece.text = held_text_.substr(0, released);
  held_text_.erase(0, released);

  const bool ends = at_end || piece.stop.has_value();
  std::size_t num_done = 0;
  while (num_done < token_ends_.size() && (ends || token_ends_[num_done] <= released)) ++num_done;
  token_ends_.erase(token_ends_.begin(), token_ends_.begin() + static_cast<std::ptrdiff_t>(num_done));
  for (std::size_t& end : token_ends_) {
    if (end != kOpen) end -= released;
  }
  piece.num_tokens = static_cast<std::int32_t>(num_done);
  num_tokens_ += piece.num_tokens;
  ended_ = ends;
  return piece;
}

}  // namespace thalweg::text
