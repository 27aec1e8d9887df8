#include "server/text_pool.h"

#include <algorithm>

namespace thalweg::server {

TextPool::TextPool(std::int32_t num_threads, std::int32_t max_waiting)
    : waiting_(static_cast<std::size_t>(std::max(max_waiting, 1))) {
  for (std::int32_t i = 0; i < std::max(num_threads, 1); ++i) {
    threads_.emplace_back([this] {
      while (std::optional<Work> work = waiting_.pop()) (*work)();
    });
  }
}

TextPool::~TextPool() {
  waiting_.close();
  waiting_.drain();
}

}  // namespace thalweg::server
