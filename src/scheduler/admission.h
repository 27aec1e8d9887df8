// May it enter?
#pragma once

#include <atomic>
#include <cstdint>
#include <utility>

#include "thalweg/error.h"
#include "thalweg/request.h"

namespace thalweg::scheduler {

struct AdmissionLimits {
  std::int32_t vocab_size = 0;
  std::int32_t max_model_len = 0;      // tokens of prompt and output together
  std::int64_t max_cached_tokens = 0;  // that all blocks of the pool hold
  std::int32_t max_queued_requests = 0;
};

class AdmissionGate;

/// One place in the queue, given back when it is destroyed: at the request's first step, or when the
/// request ends before. Must not outlive its gate.
class QueuePlace {
 public:
  QueuePlace() = default;
  QueuePlace(QueuePlace&& other) noexcept : num_queued_(std::exchange(other.num_queued_, nullptr)) {}
  QueuePlace& operator=(QueuePlace&& other) noexcept {
    std::swap(num_queued_, other.num_queued_);
    return *this;
  }
  ~QueuePlace() {
    if (num_queued_ != nullptr) num_queued_->fetch_sub(1, std::memory_order_relaxed);
  }

 private:
  friend class AdmissionGate;
  explicit QueuePlace(std::atomic<std::int32_t>* num_queued) : num_queued_(num_queued) {}

  std::atomic<std::int32_t>* num_queued_ = nullptr;
};

/// Answers on the caller's thread, so that a request that cannot run costs the engine nothing. Any
/// thread.
class AdmissionGate {
 public:
  explicit AdmissionGate(const AdmissionLimits& limits) : limits_(limits) {}

  /// Whether the request is well formed and could run alone on an empty engine.
  Status check(const GenerateRequest& request) const;

  /// Takes a place in the queue: refused with kResourceExhausted when it is full, with kUnavailable
  /// once the gate is closed.
  Result<QueuePlace> enter();

  /// From now on nobody enters. `reason` completes "the engine ...".
  void close(const char* reason) { closed_reason_.store(reason, std::memory_order_release); }

  std::int32_t num_queued() const { return num_queued_.load(std::memory_order_relaxed); }

 private:
  Status check_length(const GenerateRequest& request) const;

  const AdmissionLimits limits_;
  std::atomic<std::int32_t> num_queued_ = 0;
  std::atomic<const char*> closed_reason_ = nullptr;  // a string literal
};

}  // namespace thalweg::scheduler
