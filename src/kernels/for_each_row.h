// Independent rows of a kernel, shared out among the threads.
#pragma once

#include <algorithm>
#include <cstdint>

#include "device/stream.h"
#include "device/thread_pool.h"

namespace thalweg::kernels {

/// Calls `body(row)` once per row. `row_cost`: what a row takes, in elements read and written once; less than a task's
/// worth of them is not worth waking other threads for and runs on the caller.
template <typename Body>
void for_each_row(device::Stream& stream, std::int64_t num_rows, std::int64_t row_cost, Body body) {
  constexpr std::int64_t kElementsPerTask = 64 * 1024;  // ten microseconds of one thread
  const std::int64_t rows_per_task = std::max<std::int64_t>(1, kElementsPerTask / std::max<std::int64_t>(1, row_cost));
  const auto run_rows = [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t row = first; row < last; ++row) body(row);
  };
  if (num_rows <= rows_per_task) {
    run_rows(0, num_rows);
    return;
  }
  stream.threads->parallel_for((num_rows + rows_per_task - 1) / rows_per_task, [&](std::int64_t task, int) {
    run_rows(task * rows_per_task, std::min(num_rows, (task + 1) * rows_per_task));
  });
}

}  // namespace thalweg::kernels
