// Every weight of a V4.1 checkpoint: its name, how it is stored, what it is part of and how layouts of several ranks
// divide it (DeepSeek-V4.1 specification, appendix B and section 6.6).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "models/deepseek_v41/config.h"
#include "weights/safetensors_writer.h"

namespace thalweg::models::deepseek_v41 {

enum class Storage : std::uint8_t {
  kF32,
  kBF16,
  kF8Tiles,  // E4M3 with a UE8M0 scale per 32 x 32
  kF8Rows,   // E4M3 with a UE8M0 scale per 32 channels of a row
  kF4Rows,   // E2M1, two per byte, with a UE8M0 scale per 32 channels of a row
};

/// What bytes are spent on.
enum class Part : std::uint8_t {
  kAttention,
  kSharedExperts,
  kRouters,
  kStreamMixes,
  kNorms,
  kRoutedExperts,
  kCompressors,
  kIndexers,
  kVocabulary,
  kEngramTables,
  kEngramProjections,
  kDraftExperts,
  kDraftDense,
  kVision,
};
const char* part_name(Part part);

/// Along what a weight may be divided between ranks.
enum class Split : std::uint8_t { kNone, kHeads, kSharedExpert, kExperts, kVocabulary, kTableRows };

struct Parameter {
  std::string name;  // of the tensor; quantised ones add ".weight" and ".scale"
  Storage storage = Storage::kBF16;
  std::vector<std::int64_t> shape;  // of the values
  Part part = Part::kNorms;
  Split split = Split::kNone;
};

using StoredTensor = weights::SafetensorsWriter::Tensor;

/// The tensors that hold it: values, and scales where it has them.
std::vector<StoredTensor> stored_tensors(const Parameter& parameter);
std::int64_t stored_bytes(const Parameter& parameter);

/// All but the vision tower, in the order of the layers.
std::vector<Parameter> inventory(const Config& config);

/// The tower that turns images into embeddings (section 8); kept by checkpoints, not run here.
struct VisionTower {
  std::int32_t num_layers = 0;
  std::int64_t hidden_size = 0;
  std::int64_t intermediate_size = 0;
  std::int64_t patch_size = 0;        // pixels
  std::int64_t downsample_ratio = 0;  // patches that become one embedding, along each side
};

std::vector<Parameter> inventory(const VisionTower& tower, std::int64_t embedding_size);

}  // namespace thalweg::models::deepseek_v41
