#include "kv_cache/block_pool.h"

#include <limits>

#include "base/check.h"

namespace thalweg::kv_cache {

BlockPool::BlockPool(std::int64_t num_blocks) {
  CHECK_GT(num_blocks, 0);
  CHECK_LE(num_blocks, std::numeric_limits<BlockId>::max());
  blocks_.resize(static_cast<std::size_t>(num_blocks));
  for (BlockId block = 0; block < num_blocks; ++block) append(block);
}

BlockPool::Block& BlockPool::at(BlockId block) {
  CHECK_GE(block, 0);
  CHECK_LT(block, num_blocks());
  return blocks_[static_cast<std::size_t>(block)];
}

void BlockPool::append(BlockId block) {
  Block& entry = at(block);
  List& list = list_of(entry);
  entry.previous = list.last;
  entry.next = -1;
  (list.last < 0 ? list.first : at(list.last).next) = block;
  list.last = block;
  ++num_free_;
}

void BlockPool::unlink(BlockId block) {
  Block& entry = at(block);
  List& list = list_of(entry);
  (entry.previous < 0 ? list.first : at(entry.previous).next) = entry.next;
  (entry.next < 0 ? list.last : at(entry.next).previous) = entry.previous;
  entry.previous = entry.next = -1;
  --num_free_;
}

BlockId BlockPool::take() {
  CHECK_GT(num_free_, 0);
  const BlockId block = empty_.first >= 0 ? empty_.first : cached_.first;
  unlink(block);
  at(block).num_references = 1;
  return block;
}

void BlockPool::reference(BlockId block) {
  Block& entry = at(block);
  if (entry.num_references == 0) {
    CHECK(entry.has_content);
    unlink(block);
  }
  ++entry.num_references;
}

void BlockPool::release(BlockId block) {
  Block& entry = at(block);
  CHECK_GT(entry.num_references, 0);
  if (--entry.num_references == 0) append(block);
}

void BlockPool::set_content(BlockId block, bool has_content) {
  Block& entry = at(block);
  if (entry.has_content == has_content) return;
  const bool is_free = entry.num_references == 0;
  if (is_free) unlink(block);
  entry.has_content = has_content;
  if (is_free) append(block);
}

std::int64_t BlockPool::count_list(const List& list, bool has_content) const {
  std::int64_t count = 0;
  BlockId previous = -1;
  for (BlockId block = list.first; block >= 0; block = blocks_[static_cast<std::size_t>(block)].next) {
    const Block& entry = blocks_[static_cast<std::size_t>(block)];
    CHECK_EQ(entry.previous, previous);
    CHECK_EQ(entry.num_references, 0);
    CHECK_EQ(entry.has_content, has_content);
    previous = block;
    CHECK_LE(++count, num_blocks());
  }
  CHECK_EQ(list.last, previous);
  return count;
}

void BlockPool::check_invariants() const {
  std::int64_t num_unreferenced = 0;
  for (const Block& entry : blocks_) {
    CHECK_GE(entry.num_references, 0);
    if (entry.num_references == 0) ++num_unreferenced;
  }
  CHECK_EQ(num_unreferenced, num_free_);
  CHECK_EQ(count_list(empty_, false) + count_list(cached_, true), num_free_);
}

}  // namespace thalweg::kv_cache
