// The two ends of a model: token ids to vectors, vectors to logits. When the head is tied, the table is stored once and
// serves both.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "device/stream.h"
#include "kernels/linear/linear.h"
#include "layers/weight_reader.h"

namespace thalweg::layers {

struct Vocabulary {
  kernels::LinearWeight embedding;      // [vocab_size, hidden_size]
  kernels::LinearWeight separate_head;  // the same shape; without rows when tied

  const kernels::LinearWeight& head() const { return separate_head.num_rows() == 0 ? embedding : separate_head; }
};

/// Names without ".weight"; an empty `head` means tied.
Vocabulary load_vocabulary(WeightReader& reader, const std::string& embedding, const std::string& head,
                           std::int64_t vocab_size, std::int64_t hidden_size);

/// out[i] = scale * row ids[i], [num_tokens, hidden_size].
void embed(device::Stream& stream, const Vocabulary& vocabulary, std::span<const std::int32_t> ids, float scale,
           float* out);

/// x: [num_tokens, hidden_size]; logits: [num_tokens, vocab_size].
void unembed(device::Stream& stream, const Vocabulary& vocabulary, std::int64_t num_tokens, const float* x,
             float* logits);

}  // namespace thalweg::layers
