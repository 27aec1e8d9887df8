// One name for each tensor of DeepSeek's newer checkpoints, whose converters spell them differently.
#pragma once

#include <string>
#include <string_view>

namespace thalweg::weights {

/// The name that the released checkpoints use (DeepSeek-V4.1 specification, appendix B) for one that may have a
/// beginning "model.", "self_attn" for "attn" and "mlp" for "ffn" in the text layers, "weight_scale_inv" for "scale" or
/// "e_score_correction_bias" for "bias". Other names stay as they are.
std::string deepseek_tensor_name(std::string_view stored);

}  // namespace thalweg::weights
