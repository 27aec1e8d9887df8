// The threads that run CPU kernels.
//
// Work is claimed in small tasks from one counter, so a thread that another process slows down takes
// fewer of them and nobody waits at a barrier for its share. Idle threads spin briefly, then sleep.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <type_traits>
#include <utility>

#include "device/buffer.h"

namespace thalweg::device {

/// Who uses a piece of kernel scratch. Operations that call one another need different slots: an expert layer
/// gathers tokens, then calls linear.
enum class ScratchSlot : std::uint8_t { kLinear, kMoe, kAttention };

/// One thread at a time may call `parallel_for`, `scratch` and `take_buffer`; it takes part in the work.
class ThreadPool {
 public:
  /// Threads in all, the caller included. With `pin`, worker i is bound to the i-th processor of
  /// the process's affinity mask until it turns out that another process keeps it from there; the caller is left alone.
  explicit ThreadPool(int num_threads, bool pin = true);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int num_threads() const;

  /// Calls `body(task, thread)` once for each task in [0, num_tasks), thread in
  /// [0, num_threads()), and returns when all are done. Results must not depend on which thread
  /// runs a task. No nesting, no exceptions out of `body`. A good task takes 10 to 50 us: long enough to pay for its
  /// claim, short enough that a thread which loses its processor holds little back.
  template <typename Body>
  void parallel_for(std::int64_t num_tasks, Body&& body) {
    using Plain = std::remove_reference_t<Body>;
    run(
        num_tasks, [](void* context, std::int64_t task, int thread) { (*static_cast<Plain*>(context))(task, thread); },
        const_cast<std::remove_const_t<Plain>*>(&body));
  }

  /// At least `num_bytes` of memory for one kernel call, 64-byte aligned, of undefined content. The same memory is
  /// given again by the next call with this slot; it grows on demand and is kept.
  std::byte* scratch(ScratchSlot slot, std::size_t num_bytes);

  /// Zeroed memory for what the threads will read again and again, from huge pages it shares with its neighbours
  /// (device/arena.h). It may outlive the pool.
  Buffer take_buffer(std::size_t num_bytes);

 private:
  using TaskFunction = void (*)(void* context, std::int64_t task, int thread);
  void run(std::int64_t num_tasks, TaskFunction function, void* context);

  struct State;
  std::unique_ptr<State> state_;
};

/// Processors this process may run on, as the kernel and the cgroup quota tell.
int num_usable_cpus();

}  // namespace thalweg::device
