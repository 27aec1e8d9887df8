#include "kernels/rope/rope/versions.h"

namespace thalweg::kernels::rotation {
namespace {

void rotate(float& a, float& b, float cos, float sin) {
  const float rotated_a = a * cos - b * sin;
  b = b * cos + a * sin;
  a = rotated_a;
}

}  // namespace

void rope_halves_reference(const RopeTokenArgs& args) {
  for (std::int32_t head = 0; head < args.num_heads; ++head) {
    float* x = args.x + std::int64_t{head} * args.head_dim;
    for (std::int32_t i = 0; i < args.num_pairs; ++i) rotate(x[i], x[i + args.num_pairs], args.cos[i], args.sin[i]);
  }
}

void rope_interleaved_reference(const RopeTokenArgs& args) {
  for (std::int32_t head = 0; head < args.num_heads; ++head) {
    float* x = args.x + std::int64_t{head} * args.head_dim;
    for (std::int32_t i = 0; i < args.num_pairs; ++i) rotate(x[2 * i], x[2 * i + 1], args.cos[i], args.sin[i]);
  }
}

}  // namespace thalweg::kernels::rotation
