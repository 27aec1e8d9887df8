// Which blocks are free, and how many sequences hold each of the others.
#pragma once

#include <cstdint>
#include <vector>

namespace thalweg::kv_cache {

using BlockId = std::int32_t;

/// Two lists of free blocks: those without content are handed out first, then those that still hold
/// a cached prefix, least recently released first. Owned by the engine thread; all calls are O(1).
class BlockPool {
 public:
  explicit BlockPool(std::int64_t num_blocks);

  std::int64_t num_blocks() const { return static_cast<std::int64_t>(blocks_.size()); }
  std::int64_t num_free() const { return num_free_; }
  std::int64_t num_used() const { return num_blocks() - num_free_; }
  std::int32_t num_references(BlockId block) const { return blocks_[static_cast<std::size_t>(block)].num_references; }
  bool has_content(BlockId block) const { return blocks_[static_cast<std::size_t>(block)].has_content; }

  /// A block with one reference. If its `has_content` is still set, the caller must forget that
  /// content and clear it. Precondition: num_free() > 0.
  BlockId take();

  /// One more holder, of a held block or of a free one whose content is wanted again.
  void reference(BlockId block);

  /// One holder less. The last one puts the block at the end of its free list.
  void release(BlockId block);

  /// Whether the block is to be kept for reuse of its content once it is free.
  void set_content(BlockId block, bool has_content);

  /// Free lists, flags and counts agree. O(num_blocks).
  void check_invariants() const;

 private:
  struct Block {
    std::int32_t num_references = 0;
    BlockId previous = -1;  // in its free list
    BlockId next = -1;
    bool has_content = false;
  };
  struct List {
    BlockId first = -1;
    BlockId last = -1;
  };

  Block& at(BlockId block);
  List& list_of(const Block& block) { return block.has_content ? cached_ : empty_; }
  void append(BlockId block);
  void unlink(BlockId block);
  std::int64_t count_list(const List& list, bool has_content) const;

  std::vector<Block> blocks_;
  List empty_;
  List cached_;
  std::int64_t num_free_ = 0;
};

}  // namespace thalweg::kv_cache
