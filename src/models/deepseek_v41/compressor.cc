#include "models/deepseek_v41/compressor.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "base/check.h"
#include "kernels/quant/quant.h"

namespace thalweg::models::deepseek_v41 {
namespace {

using kernels::QuantFormat;

/// An entry that this step completes.
struct NewEntry {
  std::int32_t row = 0;
  std::int32_t entry = 0;
};

/// Entries of the pass's tokens beyond what the blocks hold already, in order.
std::vector<NewEntry> completed_entries(const Pass& pass, std::int32_t ratio) {
  std::vector<NewEntry> entries;
  const kernels::PagedBatch& batch = pass.rows.batch();
  for (std::int32_t row = 0; row < pass.batch.num_rows(); ++row) {
    const std::int32_t begin = batch.cu_seqlens[static_cast<std::size_t>(row)];
    const std::int32_t end = batch.cu_seqlens[static_cast<std::size_t>(row) + 1];
    if (begin == end) continue;
    const std::int32_t first = batch.positions[static_cast<std::size_t>(begin)];
    const std::int32_t cached =
        pass.batch.cached_lens.empty() ? 0 : pass.batch.cached_lens[static_cast<std::size_t>(row)];
    const std::int32_t first_entry = std::max(first / ratio, cached / ratio);
    for (std::int32_t entry = first_entry; entry < (first + end - begin) / ratio; ++entry) {
      entries.push_back({row, entry});
    }
  }
  return entries;
}

/// Value and gate of each token of groups of two, among this step's tokens or remembered from earlier ones.
class GroupInputs {
 public:
  GroupInputs(Pass& pass, std::int32_t layer) : pass_(pass), layer_(layer), width_(2 * pass.config.head_dim) {}

  const float* at(std::int32_t row, std::int32_t position) const {
    const kernels::PagedBatch& batch = pass_.rows.batch();
    const std::int32_t begin = batch.cu_seqlens[static_cast<std::size_t>(row)];
    const std::int32_t first = batch.positions[static_cast<std::size_t>(begin)];
    if (position >= first) return pass_.work.compressor.data() + std::int64_t{begin + position - first} * width_;
    const std::int32_t slot = pass_.batch.slots[static_cast<std::size_t>(row)];
    CHECK_GE(position, pass_.layout.header(pass_.cache, slot).encoder_begin);
    return remembered(slot, position);
  }

  /// Keeps what drafts that fall through, and groups that stay open, may need again.
  void remember() {
    const kernels::PagedBatch& batch = pass_.rows.batch();
    for (std::int32_t row = 0; row < pass_.batch.num_rows(); ++row) {
      const std::int32_t begin = batch.cu_seqlens[static_cast<std::size_t>(row)];
      const std::int32_t end = batch.cu_seqlens[static_cast<std::size_t>(row) + 1];
      for (std::int32_t t = std::max(begin, end - pass_.layout.open_capacity()); t < end; ++t) {
        std::memcpy(
            remembered(pass_.batch.slots[static_cast<std::size_t>(row)], batch.positions[static_cast<std::size_t>(t)]),
            pass_.work.compressor.data() + std::int64_t{t} * width_, static_cast<std::size_t>(width_) * sizeof(float));
      }
    }
  }

 private:
  float* remembered(std::int32_t slot, std::int32_t position) const {
    return pass_.layout.open_group(pass_.cache, slot, layer_) +
           std::int64_t{position % pass_.layout.open_capacity()} * width_;
  }

  Pass& pass_;
  std::int32_t layer_;
  std::int64_t width_;
};

/// Softmax of the two gates per channel, then the weighted sum of the two values.
void pool(const float* even, const float* odd, std::int64_t head_dim, float* out) {
  for (std::int64_t c = 0; c < head_dim; ++c) {
    const float even_gate = even[head_dim + c];
    const float odd_gate = odd[head_dim + c];
    const float most = std::max(even_gate, odd_gate);
    const float even_weight = std::exp(even_gate - most);
    const float odd_weight = std::exp(odd_gate - most);
    out[c] = (even_weight * even[c] + odd_weight * odd[c]) / (even_weight + odd_weight);
  }
}

/// -> work.latents of the entries, before their norm.
void gather_latents(Pass& pass, const CompressorWeights& weights, std::int32_t ratio, std::int32_t layer,
                    const std::vector<NewEntry>& entries) {
  Workspace& work = pass.work;
  const std::int64_t num_tokens = pass.num_tokens();
  const std::int64_t head_dim = pass.config.head_dim;
  product(pass.stream, weights.value_gate, num_tokens, work.x.data(), work.compressor.data());
  if (ratio == 1) {
    // One entry per token: those that the blocks hold already are at the front of their rows.
    for (std::size_t i = 0; i < entries.size(); ++i) {
      const auto row = static_cast<std::size_t>(entries[i].row);
      const std::int32_t begin = pass.rows.batch().cu_seqlens[row];
      const std::int64_t token =
          begin + entries[i].entry - pass.rows.batch().positions[static_cast<std::size_t>(begin)];
      std::memcpy(work.latents.data() + static_cast<std::int64_t>(i) * head_dim,
                  work.compressor.data() + token * head_dim, static_cast<std::size_t>(head_dim) * sizeof(float));
    }
  } else {
    GroupInputs inputs(pass, layer);
    for (std::size_t i = 0; i < entries.size(); ++i) {
      const NewEntry& entry = entries[i];
      pool(inputs.at(entry.row, 2 * entry.entry), inputs.at(entry.row, 2 * entry.entry + 1), head_dim,
           work.latents.data() + static_cast<std::int64_t>(i) * head_dim);
    }
    inputs.remember();
  }
  round(pass.stream, pass.rounding, work.latents.data(), static_cast<std::int64_t>(entries.size()) * head_dim);
}

}  // namespace

void compress(Pass& pass, const CompressorWeights& weights, std::int32_t ratio, std::int32_t layer) {
  Workspace& work = pass.work;
  const Config& config = pass.config;
  const std::vector<NewEntry> entries = completed_entries(pass, ratio);
  gather_latents(pass, weights, ratio, layer, entries);
  if (entries.empty()) return;
  const auto count = static_cast<std::int64_t>(entries.size());
  const std::int64_t head_dim = config.head_dim;
  const std::int64_t key_dim = config.index.head_dim;
  float* latents = work.latents.data();
  float* keys = work.index_keys.data();

  layers::norm(pass.stream, weights.norm, count, latents, latents);
  round(pass.stream, pass.rounding, latents, count * head_dim);
  pass.show(layer, "latent", count, head_dim, latents);
  rounded_product(pass.stream, pass.rounding, weights.index_key, count, latents, keys);
  layers::norm(pass.stream, weights.index_key_norm, count, keys, keys);
  round(pass.stream, pass.rounding, keys, count * key_dim);

  // An entry stands where its group's first token does.
  std::vector<std::int32_t> positions;
  for (const NewEntry& entry : entries) positions.push_back(entry.entry * ratio);
  fill_rotary(pass.frequencies.of(ratio), positions, false, work.entry_rotary.data());
  rotate(pass.stream, config, count, 1, config.head_dim, work.entry_rotary.data(), latents);
  rotate(pass.stream, config, count, 1, config.index.head_dim, work.entry_rotary.data(), keys);
  round(pass.stream, pass.rounding, latents, count * head_dim);
  round(pass.stream, pass.rounding, keys, count * key_dim);

  for (std::int64_t i = 0; i < count; ++i) {
    const NewEntry& entry = entries[static_cast<std::size_t>(i)];
    const std::int32_t* table = pass.block_table(entry.row);
    kernels::quantize_row(QuantFormat::kF4Block16, latents + i * head_dim, head_dim,
                          pass.layout.entry_place(pass.cache, layer, table, entry.entry));
    kernels::quantize_row(QuantFormat::kF4Block32, keys + i * key_dim, key_dim,
                          pass.layout.index_key_place(pass.cache, layer, table, entry.entry));
  }
  if (pass.tap == nullptr || !*pass.tap) return;
  kernels::fake_quantize(pass.stream, QuantFormat::kF4Block16, count, head_dim, latents, head_dim, latents, head_dim);
  kernels::fake_quantize(pass.stream, QuantFormat::kF4Block32, count, key_dim, keys, key_dim, keys, key_dim);
  pass.show(layer, "compressed_kv", count, head_dim, latents);
  pass.show(layer, "index_k", count, key_dim, keys);
}

}  // namespace thalweg::models::deepseek_v41
