#include "models/rope_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace thalweg::models {
namespace {

constexpr double kMaxBase = 1e12;
constexpr double kMaxFactor = 1e6;

double yarn_magnitude(double factor, double weight) {
  return factor <= 1.0 ? 1.0 : 0.1 * weight * std::log(factor) + 1.0;
}

/// YaRN stretches `original` positions; some files state the stretched length, some the original one.
std::int32_t stretched(std::int32_t max_position, std::int32_t original, double factor) {
  const double product = std::min(original * factor, static_cast<double>(kMaxPosition));
  return std::max(max_position, static_cast<std::int32_t>(product));
}

RopeConfig read_yarn(ConfigReader& reader, const std::string& prefix, std::int32_t head_dim, double base,
                     std::int32_t max_position) {
  const std::int32_t original = reader.count(prefix + "original_max_position_embeddings", kMaxPosition, max_position);
  const double factor =
      reader.number(prefix + "factor", 1e-3, kMaxFactor, static_cast<double>(max_position) / original);
  const double mscale = reader.number(prefix + "mscale", 0.0, 1e3, 0.0);
  const double mscale_all_dim = reader.number(prefix + "mscale_all_dim", 0.0, 1e3, 0.0);
  const double implied = mscale != 0.0 && mscale_all_dim != 0.0
                             ? yarn_magnitude(factor, mscale) / yarn_magnitude(factor, mscale_all_dim)
                             : yarn_magnitude(factor, 1.0);
  const double magnitude = reader.number(prefix + "attention_factor", 1e-3, 1e3, implied);
  const double beta_fast = reader.number(prefix + "beta_fast", 1e-3, 1e6, 32.0);
  const double beta_slow = reader.number(prefix + "beta_slow", 1e-3, 1e6, 1.0);
  if (!reader.flag(prefix + "truncate", true)) reader.unsupported(prefix + "truncate", "false", "true");
  return {kernels::rope_yarn(head_dim, base, factor, original, beta_fast, beta_slow, magnitude),
          stretched(max_position, original, factor)};
}

}  // namespace

RopeKeys find_rope_keys(const ConfigReader& reader) {
  if (reader.has("rope_parameters.full_attention")) {
    return {"rope_parameters.full_attention", "rope_parameters.full_attention.rope_theta"};
  }
  if (reader.has("rope_parameters")) return {"rope_parameters", "rope_parameters.rope_theta"};
  return {"rope_scaling", "rope_theta"};
}

RopeConfig read_rope_hugging_face(ConfigReader& reader, const RopeKeys& keys, double default_base,
                                  std::int32_t head_dim, std::int32_t max_position) {
  const std::string prefix = keys.scaling + ".";
  const double base = reader.number(keys.base, 1.0, kMaxBase, default_base);
  const std::string type_key = prefix + (reader.has(prefix + "rope_type") ? "rope_type" : "type");
  const std::string type = reader.text(type_key, "default");
  for (const std::string& key : {prefix + "partial_rotary_factor", std::string("partial_rotary_factor")}) {
    const double share = reader.number(key, 0.0, 1.0, 1.0);
    if (share != 1.0) reader.unsupported(key, fmt::to_string(share), "1");
  }

  if (type == "default") return {kernels::rope_default(head_dim, base), max_position};
  if (type == "linear") {
    const double factor = reader.number(prefix + "factor", 1e-3, kMaxFactor);
    return {kernels::rope_linear(head_dim, base, factor), max_position};
  }
  if (type == "dynamic") {
    // The base grows with the longest sequence of a batch only beyond the original length; a result that depends on
    // what else runs is not offered, so the model ends there.
    const std::int32_t original = reader.count(prefix + "original_max_position_embeddings", kMaxPosition, max_position);
    return {kernels::rope_default(head_dim, base), std::min(original, max_position)};
  }
  if (type == "llama3") {
    const double factor = reader.number(prefix + "factor", 1e-3, kMaxFactor);
    const double low = reader.number(prefix + "low_freq_factor", 1e-3, kMaxFactor);
    const double high = reader.number(prefix + "high_freq_factor", 1e-3, kMaxFactor);
    const std::int32_t original = reader.count(prefix + "original_max_position_embeddings", kMaxPosition);
    if (high <= low) {
      reader.reject(prefix + "high_freq_factor", fmt::to_string(high), fmt::format("above low_freq_factor {}", low));
      return {};
    }
    return {kernels::rope_llama3(head_dim, base, factor, low, high, original), max_position};
  }
  if (type == "yarn") return read_yarn(reader, prefix, head_dim, base, max_position);
  reader.unsupported(type_key, fmt::format("'{}'", type), "default, linear, dynamic, llama3, yarn");
  return {};
}

RopeConfig read_rope_gguf(ConfigReader& reader, std::int32_t head_dim, std::int32_t max_position) {
  const double base = reader.number("rope.freq_base", 1.0, kMaxBase, 10000.0);
  const std::int32_t rope_dim = reader.count("rope.dimension_count", kMaxHeadDim, head_dim);
  if (rope_dim != head_dim) {
    reader.unsupported("rope.dimension_count", fmt::to_string(rope_dim), fmt::format("the head size, {}", head_dim));
  }
  // A factor without a type is linear; old files call it scale_linear.
  const char* factor_key = reader.has("rope.scaling.factor") ? "rope.scaling.factor" : "rope.scale_linear";
  double factor = reader.number(factor_key, 0.0, kMaxFactor, 1.0);
  if (factor == 0.0) factor = 1.0;
  const std::string type = reader.text("rope.scaling.type", "linear");
  RopeConfig config{.frequencies = {}, .max_position = max_position};
  if (type == "none" || (type == "linear" && factor == 1.0)) {
    config.frequencies = kernels::rope_default(head_dim, base);
  } else if (type == "linear") {
    config.frequencies = kernels::rope_linear(head_dim, base, factor);
  } else if (type == "yarn") {
    const std::int32_t original = reader.count("rope.scaling.original_context_length", kMaxPosition, max_position);
    const double magnitude = yarn_magnitude(factor, 1.0) * reader.number("rope.scaling.attn_factor", 1e-3, 1e3, 1.0);
    const double beta_fast = reader.number("rope.scaling.yarn_beta_fast", 1e-3, 1e6, 32.0);
    const double beta_slow = reader.number("rope.scaling.yarn_beta_slow", 1e-3, 1e6, 1.0);
    config.frequencies = kernels::rope_yarn(head_dim, base, factor, original, beta_fast, beta_slow, magnitude);
    config.max_position = stretched(max_position, original, factor);
  } else {
    reader.unsupported("rope.scaling.type", fmt::format("'{}'", type), "none, linear, yarn");
  }
  return config;
}

}  // namespace thalweg::models
