#include "engine/engine_loop.h"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <utility>

#include "base/check.h"
#include "base/log.h"

namespace thalweg::engine {
namespace {

constexpr std::int32_t kDefaultQueuedRequests = 4096;
// Keeps the gap between tokens well below what a reader notices while a long prompt is computed.
constexpr double kDefaultTargetStepS = 0.2;
// Beside one place per queued request; a cancel that finds no room waits for the next turn.
constexpr std::size_t kMailboxReserve = 4096;
constexpr auto kPostRetry = std::chrono::milliseconds(1);

std::int32_t pool_tokens(const step::ExecutorLimits& executor) {
  return static_cast<std::int32_t>(std::min<std::int64_t>(executor.num_blocks * executor.cache.block_size,
                                                          std::numeric_limits<std::int32_t>::max()));
}

std::int32_t cut(std::int32_t wanted, std::int32_t possible) {
  return wanted > 0 ? std::min(wanted, possible) : possible;
}

scheduler::AdmissionLimits admission_limits(const EngineLimits& limits, const step::ExecutorLimits& executor) {
  scheduler::AdmissionLimits admission;
  admission.vocab_size = executor.vocab_size;
  admission.max_model_len = limits.max_model_len;
  admission.max_cached_tokens = limits.max_pool_tokens;
  admission.max_queued_requests = limits.max_queued_requests;
  return admission;
}

scheduler::SchedulerLimits scheduler_limits(const EngineLimits& limits, const ModelDescription& model) {
  scheduler::SchedulerLimits scheduler;
  scheduler.max_num_seqs = limits.max_num_seqs;
  scheduler.tokens = {limits.max_num_batched_tokens, limits.max_draft_tokens, limits.target_step_s};
  scheduler.eos_token_ids = model.eos_token_ids;
  return scheduler;
}

}  // namespace

EngineLimits resolve_limits(const EngineOptions& options, const step::ExecutorLimits& executor) {
  EngineLimits limits;
  limits.max_model_len = cut(options.max_model_len, executor.max_model_len);
  limits.max_pool_tokens = pool_tokens(executor);
  limits.max_num_batched_tokens = cut(options.max_num_batched_tokens, executor.max_num_batched_tokens);
  // Every running stream gets its token in every step.
  limits.max_num_seqs = std::min(cut(options.max_num_seqs, executor.max_slots), limits.max_num_batched_tokens);
  limits.max_draft_tokens = std::min({options.num_draft_tokens, executor.max_draft_tokens, kMaxDraftTokens});
  limits.max_queued_requests = options.max_queued_requests > 0 ? options.max_queued_requests : kDefaultQueuedRequests;
  limits.target_step_s = options.target_step_s > 0.0 ? options.target_step_s : kDefaultTargetStepS;
  return limits;
}

EngineLoop::EngineLoop(std::unique_ptr<step::StepExecutor> executor, ModelDescription model,
                       const EngineOptions& options, const Clock& clock, std::optional<std::uint64_t> secret_seed)
    : clock_(clock),
      executor_(std::move(executor)),
      limits_(resolve_limits(options, executor_->limits())),
      model_(std::move(model)),
      hasher_(secret_seed ? kv_cache::BlockHasher(*secret_seed) : kv_cache::BlockHasher()),
      gate_(admission_limits(limits_, executor_->limits())),
      kv_(executor_->limits().cache, executor_->limits().num_blocks, options.enable_prefix_cache),
      scheduler_(scheduler_limits(limits_, model_), kv_, hasher_, outbox_),
      last_progress_s_(clock.now()),
      mailbox_(static_cast<std::size_t>(limits_.max_queued_requests) + kMailboxReserve) {
  model_.max_model_len = std::min(limits_.max_model_len, limits_.max_pool_tokens);
  model_.max_draft_tokens = limits_.max_draft_tokens;
  publish();
}

EngineLoop::~EngineLoop() { close(0.0); }

void EngineLoop::start() {
  CHECK(!started_.exchange(true));
  thread_ = std::thread([this] { run(); });
}

Result<RequestId> EngineLoop::submit(GenerateRequest request, std::shared_ptr<EventSink> sink) {
  CHECK(sink != nullptr);
  const auto refuse = [this](Error error) {
    num_rejected_.fetch_add(1, std::memory_order_relaxed);
    return std::unexpected(std::move(error));
  };
  if (Status status = gate_.check(request); !status) return refuse(std::move(status.error()));
  Result<scheduler::QueuePlace> place = gate_.enter();
  if (!place) return refuse(std::move(place.error()));

  const RequestId id{last_request_id_.fetch_add(1, std::memory_order_relaxed) + 1};
  const scheduler::RequestContext context{hasher_, kv_.spec().block_size, kv_.prefix_cache_enabled()};
  Message message =
      scheduler::make_request(id, std::move(request), std::move(sink), std::move(*place), clock_.now(), context);
  if (!post(std::move(message))) return refuse({ErrorCode::kUnavailable, "the engine has shut down", {}});
  return id;
}

void EngineLoop::cancel(RequestId id) { post(Cancel{id, {}}); }

void EngineLoop::cancel_sequence(RequestId id, std::int32_t sequence_index) { post(Cancel{id, sequence_index}); }

EngineStats EngineLoop::stats() const {
  EngineStats stats = stats_.read();
  stats.num_requests_rejected = num_rejected_.load(std::memory_order_relaxed);
  return stats;
}

Status EngineLoop::reset_prefix_cache() {
  ResetPrefixCache reset{std::make_unique<std::promise<Status>>()};
  std::future<Status> answer = reset.answer->get_future();
  if (!post(std::move(reset))) return fail(ErrorCode::kUnavailable, "the engine has shut down");
  return answer.get();
}

void EngineLoop::close(double drain_s) {
  gate_.close("is shutting down");
  post(Close{clock_.now() + drain_s});
  if (!started_.load(std::memory_order_acquire)) {
    if (!stopped_.load(std::memory_order_acquire)) run();
    return;
  }
  stopped_.wait(false, std::memory_order_acquire);
  if (!joined_.exchange(true)) thread_.join();
}

/// False once nobody takes mail any more.
bool EngineLoop::post(Message message) {
  while (!mailbox_.try_push(message)) {
    if (stopped_.load(std::memory_order_acquire)) return false;
    std::this_thread::sleep_for(kPostRetry);
  }
  return true;
}

void EngineLoop::run() {
  while (true) {
    if (turn()) continue;
    if (close_at_s_) break;
    std::optional<Message> message = mailbox_.pop();
    CHECK(message.has_value());
    take(std::move(*message));
  }
  finish_run();
}

/// Those whose mail came too late are answered as well.
void EngineLoop::finish_run() {
  mailbox_.close();
  for (Message& message : mailbox_.drain()) take(std::move(message));
  scheduler_.end_all(FinishReason::kCancelled, {}, clock_.now());
  publish();
  stopped_.store(true, std::memory_order_release);
  stopped_.notify_all();
}

bool EngineLoop::turn() {
  for (Message& message : mailbox_.drain()) take(std::move(message));
  end_what_is_over();
  const bool submitted = submit_next_step();
  publish();  // who cancelled need not wait for the step
  if (num_in_flight_ == step::StepExecutor::kMaxInFlight || (num_in_flight_ > 0 && !submitted)) collect_oldest_step();
  publish();
  return num_in_flight_ > 0 || (!device_error_ && scheduler_.has_work());
}

void EngineLoop::take(Message message) {
  std::visit([this](auto& content) { take(std::move(content)); }, message);
}

void EngineLoop::take(const Cancel& cancel) {
  if (cancel.sequence_index) {
    scheduler_.cancel_sequence(cancel.id, *cancel.sequence_index, clock_.now());
  } else {
    scheduler_.cancel(cancel.id, clock_.now());
  }
}

void EngineLoop::take(ResetPrefixCache reset) {
  if (scheduler_.num_running() > 0) {
    reset.answer->set_value(fail(
        ErrorCode::kFailedPrecondition,
        fmt::format("the prefix cache is in use: {} sequences run, 0 must; try when idle", scheduler_.num_running())));
    return;
  }
  kv_.reset_prefix_cache();
  reset.answer->set_value({});
}

void EngineLoop::take(const Close& close) {
  close_at_s_ = close_at_s_ ? std::min(*close_at_s_, close.until_s) : close.until_s;
}

void EngineLoop::end_what_is_over() {
  const double now = clock_.now();
  if (device_error_) scheduler_.end_all(FinishReason::kError, device_error_, now);
  if (close_at_s_ && now >= *close_at_s_) scheduler_.end_all(FinishReason::kCancelled, {}, now);
  scheduler_.end_expired(now);
}

bool EngineLoop::submit_next_step() {
  if (device_error_ || num_in_flight_ == step::StepExecutor::kMaxInFlight) return false;
  std::optional<step::StepPlan> plan = scheduler_.plan(clock_.now());
  if (!plan) return false;
  executor_->submit(std::move(*plan));
  ++num_in_flight_;
  return true;
}

void EngineLoop::collect_oldest_step() {
  step::StepResult result = executor_->collect();
  --num_in_flight_;
  if (!result.fatal.empty()) {
    device_error_ = result.fatal.front();
    num_in_flight_ = 0;  // no further step will run, so none is waited for
    gate_.close("has lost its device");
    log(LogLevel::kError, "the device is gone, all requests end: {}", device_error_->message);
  }
  scheduler_.apply(std::move(result), clock_.now());
}

/// The numbers first: whoever is told of an end finds it counted.
void EngineLoop::publish() {
  last_progress_s_ = clock_.now();
  EngineStats stats;
  scheduler_.fill(stats);
  stats.device_lost = device_error_.has_value();
  stats.last_progress_s = last_progress_s_;
  stats_.publish(stats);
  outbox_.deliver();
}

std::unique_ptr<Engine> make_engine(std::unique_ptr<step::StepExecutor> executor, ModelDescription model,
                                    const EngineOptions& options, const Clock& clock) {
  auto engine = std::make_unique<EngineLoop>(std::move(executor), std::move(model), options, clock);
  engine->start();
  return engine;
}

}  // namespace thalweg::engine
