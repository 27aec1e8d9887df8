#include "device/thread_pool.h"

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "base/check.h"
#include "device/arena.h"
#include "device/buffer.h"

namespace thalweg::device {
namespace {

using Clock = std::chrono::steady_clock;

// Kernels of one step follow one another within microseconds; a worker that waits this long has reached the
// end of a step.
constexpr auto kWorkerSpin = std::chrono::microseconds(50);
// A caller that waits longer than a task should take has lost a worker to another process: its own processor is then
// better left to that worker.
constexpr auto kCallerSpin = std::chrono::microseconds(30);
// A worker lost for so long, so often, shares its processor for good. Bound to it, it would be of little use.
constexpr auto kLongLoss = std::chrono::milliseconds(1);
constexpr int kMaxLongLosses = 3;
constexpr std::int64_t kMaxTasks = std::int64_t{1} << 31;

void pause_briefly() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Returns true as soon as `ready` does, false when it did not within `limit`.
template <typename Ready>
bool spin_until(std::chrono::nanoseconds limit, Ready&& ready) {
  if (ready()) return true;
  const Clock::time_point end = Clock::now() + limit;
  do {
    for (int i = 0; i < 16; ++i) {
      pause_briefly();
      if (ready()) return true;
    }
  } while (Clock::now() < end);
  return false;
}

std::vector<int> allowed_processors() {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::vector<int> processors;
  if (sched_getaffinity(0, sizeof(set), &set) != 0) return processors;
  for (int i = 0; i < CPU_SETSIZE; ++i) {
    if (CPU_ISSET(i, &set)) processors.push_back(i);
  }
  return processors;
}

// Best effort: a refused binding costs speed only.
void bind(pthread_t thread, std::span<const int> processors) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int processor : processors) CPU_SET(processor, &set);
  pthread_setaffinity_np(thread, sizeof(set), &set);
}

}  // namespace

// A job is the work of one `run`. Its tasks are claimed by compare-and-swap on `ticket`, which holds the job's number
// next to the count of unclaimed tasks. A claim succeeds only while that very job has an unclaimed task, and
// `run` changes the job's description only after all its tasks are done, so a thread that claimed a task has read the
// description of that job, never that of the next.
struct ThreadPool::State {
  alignas(64) std::atomic<std::uint64_t> ticket{0};  // job << 32 | unclaimed tasks
  std::atomic<TaskFunction> function{nullptr};
  std::atomic<void*> context{nullptr};
  std::atomic<std::uint32_t> num_tasks{0};

  alignas(64) std::atomic<std::uint32_t> num_done{0};

  alignas(64) std::atomic<std::uint32_t> wake_count{0};  // sleepers wait for it to change
  std::atomic<bool> any_asleep{false};                   // or about to be; whoever wakes them clears it
  std::atomic<bool> stopping{false};

  std::vector<std::thread> workers;
  std::vector<int> processors;  // the workers' choice; empty when they are not bound
  int num_long_losses = 0;
  std::array<Buffer, 3> scratch;  // by ScratchSlot
  Arena arena;

  bool has_unclaimed_task(std::memory_order order) const { return static_cast<std::uint32_t>(ticket.load(order)) != 0; }

  // Runs tasks until none is unclaimed.
  void work(int thread) {
    std::uint64_t seen = ticket.load(std::memory_order_acquire);
    while (const auto num_unclaimed = static_cast<std::uint32_t>(seen)) {
      const std::uint32_t count = num_tasks.load(std::memory_order_relaxed);
      const TaskFunction call = function.load(std::memory_order_relaxed);
      void* argument = context.load(std::memory_order_relaxed);
      if (!ticket.compare_exchange_weak(seen, seen - 1, std::memory_order_acq_rel, std::memory_order_acquire)) continue;
      call(argument, count - num_unclaimed, thread);
      if (num_done.fetch_add(1, std::memory_order_acq_rel) + 1 == count) num_done.notify_one();
      seen = ticket.load(std::memory_order_acquire);
    }
  }

  void worker_loop(int thread) {
    while (!stopping.load(std::memory_order_relaxed)) {
      work(thread);
      if (spin_until(kWorkerSpin, [this] { return has_unclaimed_task(std::memory_order_acquire); })) continue;
      // Either this thread sees the next job here, or `run` sees the flag and changes the count: all of it is
      // sequentially consistent.
      const std::uint32_t seen = wake_count.load(std::memory_order_seq_cst);
      any_asleep.store(true, std::memory_order_seq_cst);
      if (has_unclaimed_task(std::memory_order_seq_cst) || stopping.load(std::memory_order_seq_cst)) continue;
      wake_count.wait(seen);
    }
  }

  // A thread that was woken but has no processor yet is not woken again: the calls would cost more than short jobs.
  void wake() {
    if (!any_asleep.load(std::memory_order_seq_cst)) return;
    any_asleep.store(false, std::memory_order_seq_cst);
    wake_count.fetch_add(1, std::memory_order_seq_cst);
    wake_count.notify_all();
  }

  void wait_for_workers(std::uint32_t count) {
    const auto finished = [this, count] { return num_done.load(std::memory_order_acquire) == count; };
    if (spin_until(kCallerSpin, finished)) return;
    const Clock::time_point start = Clock::now();
    for (std::uint32_t done = num_done.load(std::memory_order_acquire); done != count;
         done = num_done.load(std::memory_order_acquire)) {
      num_done.wait(done, std::memory_order_acquire);
    }
    if (Clock::now() - start > kLongLoss && ++num_long_losses == kMaxLongLosses) unbind_workers();
  }

  void unbind_workers() {
    if (processors.empty()) return;
    for (std::thread& worker : workers) bind(worker.native_handle(), processors);
  }
};

ThreadPool::ThreadPool(int num_threads, bool pin) : state_(std::make_unique<State>()) {
  CHECK_GE(num_threads, 1);
  State& state = *state_;
  if (pin) state.processors = allowed_processors();
  state.workers.reserve(static_cast<std::size_t>(num_threads - 1));
  for (int i = 1; i < num_threads; ++i) {
    state.workers.emplace_back([&state, i] {
      pthread_setname_np(pthread_self(), ("kernels-" + std::to_string(i)).c_str());
      state.worker_loop(i);
    });
    if (state.processors.empty()) continue;
    const std::size_t own = static_cast<std::size_t>(i) % state.processors.size();
    bind(state.workers.back().native_handle(), std::span(state.processors).subspan(own, 1));
  }
}

ThreadPool::~ThreadPool() {
  state_->stopping.store(true, std::memory_order_seq_cst);
  state_->wake_count.fetch_add(1, std::memory_order_seq_cst);
  state_->wake_count.notify_all();
  for (std::thread& worker : state_->workers) worker.join();
}

int ThreadPool::num_threads() const { return static_cast<int>(state_->workers.size()) + 1; }

void ThreadPool::run(std::int64_t num_tasks, TaskFunction function, void* context) {
  if (num_tasks <= 0) return;
  if (num_tasks == 1 || state_->workers.empty()) {
    for (std::int64_t task = 0; task < num_tasks; ++task) function(context, task, 0);
    return;
  }
  CHECK_LE(num_tasks, kMaxTasks);
  State& state = *state_;
  const auto count = static_cast<std::uint32_t>(num_tasks);

  // The last job has no unclaimed task, so nobody acts on this description before the ticket changes.
  const std::uint64_t job = (state.ticket.load(std::memory_order_relaxed) >> 32) + 1;
  state.num_done.store(0, std::memory_order_relaxed);
  state.function.store(function, std::memory_order_relaxed);
  state.context.store(context, std::memory_order_relaxed);
  state.num_tasks.store(count, std::memory_order_relaxed);
  state.ticket.store(job << 32 | count, std::memory_order_seq_cst);
  state.wake();

  state.work(0);
  state.wait_for_workers(count);
}

std::byte* ThreadPool::scratch(ScratchSlot slot, std::size_t num_bytes) {
  Buffer& buffer = state_->scratch.at(static_cast<std::size_t>(slot));
  if (buffer.size() < num_bytes) {
    const std::size_t grown = std::max(num_bytes, buffer.size() + buffer.size() / 2);
    buffer = Buffer();  // give back first: its content is not kept
    buffer = Buffer(grown);
  }
  return buffer.data();
}

Buffer ThreadPool::take_buffer(std::size_t num_bytes) { return state_->arena.take(num_bytes); }

}  // namespace thalweg::device
