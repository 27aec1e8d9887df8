#include "text/encode_cache.h"

#include <utility>

namespace thalweg::text {
namespace {

bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

std::string key_of(std::string_view piece, char variant) {
  std::string key;
  key.reserve(piece.size() + 1);
  key.append(piece);
  key.push_back(variant);
  return key;
}

}  // namespace

std::size_t piece_end(std::string_view text, std::size_t begin, std::size_t min_size) {
  for (std::size_t at = begin + min_size; at + 1 < text.size(); ++at) {
    if (text[at] == ' ' && is_letter(text[at - 1]) && is_letter(text[at + 1])) return at;
  }
  return text.size();
}

bool EncodeCache::append(std::string_view piece, char variant, std::vector<std::int32_t>& out) {
  const std::string key = key_of(piece, variant);
  std::lock_guard lock(mutex_);
  const auto found = by_key_.find(key);
  if (found == by_key_.end()) return false;
  entries_.splice(entries_.begin(), entries_, found->second);
  out.insert(out.end(), found->second->ids.begin(), found->second->ids.end());
  ++num_hits_;
  return true;
}

void EncodeCache::insert(std::string_view piece, char variant, std::vector<std::int32_t> ids) {
  Entry entry{key_of(piece, variant), std::move(ids)};
  const std::size_t size = entry.num_bytes();
  if (size > max_bytes_) return;
  std::lock_guard lock(mutex_);
  if (by_key_.contains(entry.key)) return;  // another thread was faster
  while (num_bytes_ + size > max_bytes_) {
    const Entry& oldest = entries_.back();
    num_bytes_ -= oldest.num_bytes();
    by_key_.erase(oldest.key);
    entries_.pop_back();
  }
  entries_.push_front(std::move(entry));
  by_key_.emplace(entries_.front().key, entries_.begin());
  num_bytes_ += size;
}

std::size_t EncodeCache::num_bytes() const {
  std::lock_guard lock(mutex_);
  return num_bytes_;
}

std::uint64_t EncodeCache::num_hits() const {
  std::lock_guard lock(mutex_);
  return num_hits_;
}

}  // namespace thalweg::text
