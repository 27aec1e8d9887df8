// Ids of pieces of recent texts, so that a conversation that grows is not tokenised from its start.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace thalweg::text {

/// End of the piece of `text` that begins at `begin`: the first place at least `min_size` bytes on that
/// lies between an ASCII letter and a space followed by an ASCII letter; else the end of the text. It
/// depends on the text before it alone (and the two bytes after it), so texts that share a beginning
/// share their pieces up to where they part.
std::size_t piece_end(std::string_view text, std::size_t begin, std::size_t min_size);

/// Holds at most `max_bytes` of texts and ids, the least recently used leave first. Any thread.
class EncodeCache {
 public:
  explicit EncodeCache(std::size_t max_bytes) : max_bytes_(max_bytes) {}

  /// Appends the ids of `piece` under `variant` to `out`; false when they are not here.
  bool append(std::string_view piece, char variant, std::vector<std::int32_t>& out);
  void insert(std::string_view piece, char variant, std::vector<std::int32_t> ids);

  std::size_t num_bytes() const;
  std::uint64_t num_hits() const;

 private:
  struct Entry {
    std::string key;  // the piece and one byte for the variant; compared in full, so ids are never wrong
    std::vector<std::int32_t> ids;
    std::size_t num_bytes() const { return key.capacity() + ids.capacity() * sizeof(std::int32_t) + 128; }
  };
  using Entries = std::list<Entry>;

  // A leaf lock, held for a look-up or an insertion and never while encoding.
  mutable std::mutex mutex_;
  const std::size_t max_bytes_;
  Entries entries_;  // most recently used first
  std::unordered_map<std::string_view, Entries::iterator> by_key_;
  std::size_t num_bytes_ = 0;
  std::uint64_t num_hits_ = 0;
};

}  // namespace thalweg::text
