#include "scheduler/sequence.h"

#include <algorithm>
#include <random>
#include <span>
#include <utility>

namespace thalweg::scheduler {
namespace {

std::uint64_t draw_seed() {
  std::random_device device;
  return std::uint64_t{device()} << 32 | device();
}

}  // namespace

std::int32_t Sequence::num_prompt_tokens() const { return static_cast<std::int32_t>(request->prompt_ids->size()); }

std::int32_t Sequence::num_known_tokens() const {
  return num_prompt_tokens() + static_cast<std::int32_t>(output_ids.size());
}

std::int32_t Sequence::max_num_tokens() const { return num_prompt_tokens() + request->max_tokens; }

std::int32_t Sequence::num_target_tokens() const {
  const std::int32_t last_to_compute = std::max(num_prompt_tokens(), max_num_tokens() - 1);
  return std::min(num_known_tokens() + min_tokens_in_flight, last_to_compute);
}

bool Sequence::wants_prompt_logprobs() const { return index == 0 && request->num_prompt_logprobs >= 0; }

std::uint64_t sequence_seed(std::uint64_t request_seed, std::int32_t index) {
  if (index == 0) return request_seed;
  // The finaliser of SplitMix64 over a Weyl sequence: neighbours share no pattern.
  std::uint64_t mixed = request_seed + static_cast<std::uint64_t>(index) * 0x9E3779B97F4A7C15U;
  mixed = (mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9U;
  mixed = (mixed ^ (mixed >> 27)) * 0x94D049BB133111EBU;
  return mixed ^ (mixed >> 31);
}

std::shared_ptr<Request> make_request(RequestId id, GenerateRequest request, std::shared_ptr<EventSink> sink,
                                      QueuePlace place, double now, const RequestContext& context) {
  auto made = std::make_shared<Request>();
  made->id = id;
  made->max_tokens = request.max_tokens;
  made->num_prompt_logprobs = request.num_prompt_logprobs;
  made->priority = request.priority;
  made->timeout_s = request.timeout_s;
  made->submitted_s = now;
  made->sink = std::move(sink);
  made->queue_place = std::move(place);
  if (context.enable_prefix_cache) {
    made->root_hash = context.hasher.root(request.cache_salt);
    kv_cache::BlockHash parent = made->root_hash;
    const std::span<const std::int32_t> tokens = request.prompt_ids;
    const auto block_size = static_cast<std::size_t>(context.block_size);
    made->prompt_hashes.reserve(tokens.size() / block_size);
    for (std::size_t first = 0; first + block_size <= tokens.size(); first += block_size) {
      parent = context.hasher.next(parent, tokens.subspan(first, block_size));
      made->prompt_hashes.push_back(parent);
    }
  }

  const std::uint64_t seed = request.sampling.seed ? *request.sampling.seed : draw_seed();
  made->num_unfinished = request.num_sequences;
  made->sequences.resize(static_cast<std::size_t>(request.num_sequences));
  for (std::int32_t i = 0; i < request.num_sequences; ++i) {
    Sequence& sequence = made->sequences[static_cast<std::size_t>(i)];
    sequence.request = made.get();
    sequence.index = i;
    sequence.seed = sequence_seed(seed, i);
  }
  made->prompt_ids = std::make_shared<const std::vector<std::int32_t>>(std::move(request.prompt_ids));
  made->sampling = std::make_shared<const SamplingParams>(std::move(request.sampling));
  return made;
}

}  // namespace thalweg::scheduler
