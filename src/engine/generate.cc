// The offline run: a window of requests in the engine, results in the order asked for.
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <thread>
#include <unordered_map>
#include <utility>
#include <variant>

#include "engine/event_queue.h"
#include "thalweg/engine.h"

namespace thalweg {
namespace {

// Enough to keep any engine busy, few enough to leave room in its queue for others.
constexpr std::size_t kMaxRequestsInEngine = 512;
constexpr auto kQueueFullRetry = std::chrono::milliseconds(10);

class OfflineRun {
 public:
  OfflineRun(Engine& engine, std::vector<GenerateRequest> requests, const std::function<void(std::size_t)>& progress)
      : engine_(engine), requests_(std::move(requests)), progress_(progress), results_(requests_.size()) {}

  std::vector<std::vector<GeneratedSequence>> run() {
    while (num_done_ < requests_.size()) {
      fill_window();
      if (num_done_ == requests_.size()) break;
      if (open_.empty()) {
        std::this_thread::sleep_for(kQueueFullRetry);  // others fill the queue
        continue;
      }
      for (Event& event : sink_->wait()) std::visit([this](auto& one) { take(one); }, event);
    }
    return std::move(results_);
  }

 private:
  struct OpenRequest {
    std::size_t index = 0;
    std::size_t num_unfinished = 0;
  };

  void fill_window() {
    while (next_ < requests_.size() && open_.size() < kMaxRequestsInEngine) {
      GenerateRequest& request = requests_[next_];
      const auto num_sequences =
          static_cast<std::size_t>(std::clamp(request.num_sequences, 1, kMaxSequencesPerRequest));
      results_[next_].resize(num_sequences);
      const Result<RequestId> id = engine_.submit(request, sink_);
      if (id) {
        open_.emplace(*id, OpenRequest{next_, num_sequences});
      } else if (id.error().code == ErrorCode::kResourceExhausted) {
        return;  // the queue is full: try again when something has ended
      } else {
        refuse(next_, id.error());
      }
      request = GenerateRequest();
      ++next_;
    }
  }

  void refuse(std::size_t index, const Error& error) {
    for (std::size_t i = 0; i < results_[index].size(); ++i) {
      FinishEvent& finish = results_[index][i].finish;
      finish.sequence_index = static_cast<std::int32_t>(i);
      finish.reason = FinishReason::kError;
      finish.error = error;
    }
    count_done();
  }

  GeneratedSequence& sequence_of(RequestId id, std::int32_t sequence_index) {
    return results_[open_.at(id).index][static_cast<std::size_t>(sequence_index)];
  }

  void take(StartEvent& event) {
    sequence_of(event.request_id, event.sequence_index).prompt_logprobs = std::move(event.prompt_logprobs);
  }

  void take(TokenEvent& event) {
    GeneratedSequence& sequence = sequence_of(event.request_id, event.sequence_index);
    sequence.token_ids.insert(sequence.token_ids.end(), event.token_ids.begin(), event.token_ids.end());
    std::ranges::move(event.logprobs, std::back_inserter(sequence.logprobs));
  }

  void take(FinishEvent& event) {
    const RequestId id = event.request_id;
    sequence_of(id, event.sequence_index).finish = std::move(event);
    if (--open_.at(id).num_unfinished > 0) return;
    open_.erase(id);
    count_done();
  }

  void count_done() {
    ++num_done_;
    if (progress_) progress_(num_done_);
  }

  Engine& engine_;
  std::vector<GenerateRequest> requests_;
  const std::function<void(std::size_t)>& progress_;
  std::vector<std::vector<GeneratedSequence>> results_;
  std::shared_ptr<engine::EventQueue> sink_ = std::make_shared<engine::EventQueue>();
  std::unordered_map<RequestId, OpenRequest> open_;
  std::size_t next_ = 0;
  std::size_t num_done_ = 0;
};

}  // namespace

std::vector<std::vector<GeneratedSequence>> generate(Engine& engine, std::vector<GenerateRequest> requests,
                                                     const std::function<void(std::size_t num_done)>& progress) {
  return OfflineRun(engine, std::move(requests), progress).run();
}

}  // namespace thalweg
