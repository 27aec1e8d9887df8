#include "layers/vocabulary.h"

namespace thalweg::layers {

Vocabulary load_vocabulary(WeightReader& reader, const std::string& embedding, const std::string& head,
                           std::int64_t vocab_size, std::int64_t hidden_size) {
  Vocabulary vocabulary;
  vocabulary.embedding = reader.linear(embedding, vocab_size, hidden_size);
  if (!head.empty()) vocabulary.separate_head = reader.linear(head, vocab_size, hidden_size);
  return vocabulary;
}

void embed(device::Stream& stream, const Vocabulary& vocabulary, std::span<const std::int32_t> ids, float scale,
           float* out) {
  kernels::embedding(stream, vocabulary.embedding, ids, scale, out);
}

void unembed(device::Stream& stream, const Vocabulary& vocabulary, std::int64_t num_tokens, const float* x,
             float* logits) {
  const kernels::LinearWeight& head = vocabulary.head();
  kernels::linear(stream, {.x = x,
                           .x_stride = head.num_cols(),
                           .num_tokens = num_tokens,
                           .weight = &head,
                           .out = logits,
                           .out_stride = head.num_rows()});
}

}  // namespace thalweg::layers
