// A model on disk: metadata and tensors, from a GGUF file (or its shards) or a Hugging Face folder.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "device/dtype.h"
#include "thalweg/error.h"

namespace thalweg::weights {

class GgufMetadata;

enum class CheckpointKind : std::uint8_t { kGguf, kHuggingFace };

/// A tensor as it lies in the file. Shape is outermost first ([out_features, in_features]), for GGUF
/// too. The name is the file's own ("blk.0.attn_q.weight", "model.layers.0.self_attn.q_proj.weight").
struct TensorInfo {
  std::string name;
  device::DType dtype = device::DType::kF32;
  std::vector<std::int64_t> shape;
  std::int32_t file = 0;     // index into the checkpoint's files
  std::uint64_t offset = 0;  // bytes from the start of that file
  std::uint64_t num_bytes = 0;

  std::int64_t num_elements() const;
};

/// Typed access to metadata by key: a GGUF key ("llama.block_count") or a dotted path into config.json
/// ("rope_scaling.factor"). Absent and null are the same (not_found); a wrong type is an error that names
/// the key, the type found and the type needed. Numbers convert only without loss.
class Metadata {
 public:
  virtual ~Metadata() = default;
  virtual bool has(std::string_view key) const = 0;
  virtual Result<std::int64_t> get_int(std::string_view key) const = 0;
  virtual Result<double> get_float(std::string_view key) const = 0;
  virtual Result<bool> get_bool(std::string_view key) const = 0;
  virtual Result<std::string> get_string(std::string_view key) const = 0;
  virtual Result<std::vector<std::int64_t>> get_ints(std::string_view key) const = 0;
  virtual Result<std::vector<double>> get_floats(std::string_view key) const = 0;
  virtual Result<std::vector<std::string>> get_strings(std::string_view key) const = 0;
  /// For `inspect`: every key with a short printed value, in file order. Safe for a terminal.
  virtual std::vector<std::pair<std::string, std::string>> describe() const = 0;
};

/// Multimodal folders keep the language model's fields below "text_config": the key under which `key`
/// is to be read, "text_config.<key>" where that exists and `key` itself elsewhere.
std::string language_model_key(const Metadata& metadata, std::string_view key);

/// Files stay mapped read-only while this lives. Everything in the headers has been checked: offsets and
/// sizes lie inside the files, sizes follow from shape and type, tensors do not overlap, names are
/// unique. Tensors of a safetensors file may lie at any byte. Immutable: all functions may be called from any thread.
class Checkpoint {
 public:
  /// `path`: a .gguf file (any shard of a split one) or a folder with config.json and *.safetensors.
  static Result<std::unique_ptr<Checkpoint>> open(const std::string& path);
  virtual ~Checkpoint() = default;

  virtual CheckpointKind kind() const = 0;
  virtual const std::string& path() const = 0;
  virtual const std::string& architecture() const = 0;  // "llama", or "LlamaForCausalLM"
  virtual const Metadata& metadata() const = 0;         // config.json for a folder
  virtual const std::vector<TensorInfo>& tensors() const = 0;
  virtual const TensorInfo* find(std::string_view name) const = 0;
  virtual std::span<const std::byte> bytes(const TensorInfo& tensor) const = 0;
  /// Takes the pages of a tensor out of this process once it has been packed; they stay in the page cache.
  /// A copy of a TensorInfo with a smaller range stands for a part of it, here and in bytes().
  virtual void release(const TensorInfo& tensor) const = 0;
  virtual std::vector<std::string> files() const = 0;
  /// Keeps the files mapped for as long as it lives, beyond the checkpoint: for tables that are used where they lie.
  virtual std::shared_ptr<const void> hold() const = 0;

  /// Like find(), but says what is wrong: no such tensor, or one of an element type without meaning here.
  virtual Result<const TensorInfo*> require(std::string_view name) const;
  /// generation_config.json of a folder; empty where there is none, and for GGUF.
  virtual const Metadata& generation_metadata() const;
  /// The metadata with GGUF's typed arrays (vocabularies); null for a folder.
  virtual const GgufMetadata* gguf_metadata() const { return nullptr; }
};

}  // namespace thalweg::weights
