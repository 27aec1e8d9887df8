#include "models/registry.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "models/deepseek_v3/model.h"
#include "models/deepseek_v4/model.h"
#include "models/deepseek_v41/model.h"
#include "models/gemma3/model.h"
#include "models/llama/model.h"
#include "models/qwen2/model.h"
#include "models/qwen3/model.h"
#include "models/qwen3_moe/model.h"

namespace thalweg::models {
namespace {

struct Architecture {
  std::array<std::string_view, 3> names;  // what GGUF files and config.json call it; may be shorter
  LoadFunction load;
};

constexpr Architecture kArchitectures[] = {
    {{"llama", "LlamaForCausalLM"}, llama::load},
    {{"qwen2", "Qwen2ForCausalLM"}, qwen2::load},
    {{"qwen3", "Qwen3ForCausalLM"}, qwen3::load},
    {{"qwen3moe", "Qwen3MoeForCausalLM"}, qwen3_moe::load},
    {{"gemma3", "Gemma3ForCausalLM", "Gemma3ForConditionalGeneration"}, gemma3::load},
    {{"DeepseekV3ForCausalLM", "DeepseekV32ForCausalLM"}, deepseek_v3::load},
    {{"DeepseekV4ForCausalLM"}, deepseek_v4::load},
    {{"deepseek_v41", "DeepseekV41ForCausalLM"}, deepseek_v41::load},
};

Status check_options(const LoadOptions& options) {
  const bool known = options.kv_dtype == device::DType::kF16 || options.kv_dtype == device::DType::kBF16 ||
                     options.kv_dtype == device::DType::kF32;
  if (!known) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("cache type is {}, needed f16, bf16 or f32", device::dtype_name(options.kv_dtype)),
                "kv_dtype");
  }
  if (options.block_size < 1 || options.block_size > 1024) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("block size is {} tokens, needed 1 to 1024", options.block_size), "block_size");
  }
  return {};
}

}  // namespace

Result<std::unique_ptr<Model>> load_model(const weights::Checkpoint& checkpoint, device::Stream& stream,
                                          const LoadOptions& options) {
  if (Status status = check_options(options); !status) return std::unexpected(status.error());
  for (const Architecture& architecture : kArchitectures) {
    if (!checkpoint.architecture().empty() &&
        std::ranges::find(architecture.names, checkpoint.architecture()) != architecture.names.end()) {
      return architecture.load(checkpoint, stream, options);
    }
  }
  return fail(ErrorCode::kUnimplemented,
              fmt::format("{}: architecture is '{}', supported: {}", checkpoint.path(), checkpoint.architecture(),
                          fmt::join(supported_architectures(), ", ")));
}

std::vector<std::string> supported_architectures() {
  std::vector<std::string> names;
  for (const Architecture& architecture : kArchitectures) {
    for (const std::string_view name : architecture.names) {
      if (!name.empty()) names.emplace_back(name);
    }
  }
  return names;
}

}  // namespace thalweg::models
