#include "weights/hugging_face.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <system_error>
#include <utility>
#include <vector>

#include "base/mapped_file.h"
#include "weights/json_metadata.h"
#include "weights/mapped_checkpoint.h"
#include "weights/printable.h"
#include "weights/safetensors.h"

namespace thalweg::weights {
namespace {

constexpr std::size_t kMaxConfigBytes = 4 << 20;
constexpr std::size_t kMaxIndexBytes = 64 << 20;

class HuggingFaceCheckpoint final : public MappedCheckpoint {
 public:
  HuggingFaceCheckpoint(std::string path, std::string architecture, std::vector<MappedFile> files, TensorTable table,
                        std::vector<UnsupportedTensor> unsupported, JsonMetadata config, JsonMetadata generation)
      : MappedCheckpoint(std::move(path), std::move(architecture), std::move(files), std::move(table)),
        unsupported_(std::move(unsupported)),
        config_(std::move(config)),
        generation_(std::move(generation)) {}

  CheckpointKind kind() const override { return CheckpointKind::kHuggingFace; }
  const Metadata& metadata() const override { return config_; }
  const Metadata& generation_metadata() const override { return generation_; }

  Result<const TensorInfo*> require(std::string_view name) const override {
    const auto unsupported = std::ranges::find(unsupported_, name, &UnsupportedTensor::name);
    if (unsupported == unsupported_.end()) return Checkpoint::require(name);
    return fail(
        ErrorCode::kUnimplemented,
        fmt::format(
            "tensor '{}' of '{}' has dtype {}; supported are F32, F16, BF16, F8_E4M3, F8_E8M0, I8, U8, I32, I64",
            printable(name), path(), unsupported->type));
  }

 private:
  const std::vector<UnsupportedTensor> unsupported_;
  const JsonMetadata config_;
  const JsonMetadata generation_;
};

std::string in_folder(const std::string& folder, std::string_view name) {
  return (std::filesystem::path(folder) / name).string();
}

Result<MappedFile> open_text(const std::string& path, std::size_t max_bytes) {
  Result<MappedFile> file = MappedFile::open(path);
  if (file && file->bytes().size() > max_bytes) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("'{}' has {} bytes, needs at most {}", path, file->bytes().size(), max_bytes));
  }
  return file;
}

std::string_view text_of(const MappedFile& file) {
  return {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()};
}

Result<JsonMetadata> read_config(const std::string& path) {
  const Result<MappedFile> file = open_text(path, kMaxConfigBytes);
  if (!file) return std::unexpected(file.error());
  return JsonMetadata::parse(text_of(*file), path);
}

Result<JsonMetadata> read_generation_config(const std::string& path) {
  Result<JsonMetadata> config = read_config(path);
  if (!config && config.error().code == ErrorCode::kNotFound) return JsonMetadata(path);
  return config;
}

// File names of the folder in order; empty when it cannot be read.
std::vector<std::string> names_in(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (std::filesystem::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    names.push_back(entry->path().filename().string());
  }
  std::ranges::sort(names);
  return names;
}

std::vector<std::string> with_ending(const std::vector<std::string>& names,
                                     std::initializer_list<const char*> endings) {
  std::vector<std::string> found;
  for (const std::string& name : names) {
    if (std::ranges::any_of(endings, [&](const char* ending) { return name.ends_with(ending); })) found.push_back(name);
  }
  return found;
}

std::unexpected<Error> only_pickles(const std::string& folder, const std::string& name) {
  return fail(ErrorCode::kUnimplemented,
              fmt::format("'{}' has its weights in '{}', a pickle; those are not read because reading one runs code "
                          "from it: convert the model to safetensors",
                          folder, printable(name)));
}

std::vector<std::string> pickles_in(const std::vector<std::string>& names) {
  return with_ending(names, {".bin", ".pt", ".pth", ".ckpt"});
}

std::unexpected<Error> no_config(const std::string& folder) {
  const std::vector<std::string> names = names_in(folder);
  const std::vector<std::string> gguf = with_ending(names, {".gguf"});
  if (!gguf.empty()) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("'{}' is a folder without config.json; to use the GGUF file in it, name that file: '{}'",
                            folder, in_folder(folder, gguf.front())));
  }
  const std::vector<std::string> pickles = pickles_in(names);
  if (!pickles.empty()) return only_pickles(folder, pickles.front());
  return fail(ErrorCode::kNotFound, fmt::format("'{}' is no model: the folder has no config.json", folder));
}

std::unexpected<Error> no_weights(const std::string& folder, const std::vector<std::string>& names) {
  const std::vector<std::string> pickles = pickles_in(names);
  if (!pickles.empty()) return only_pickles(folder, pickles.front());
  return fail(ErrorCode::kNotFound, fmt::format("'{}' has no weights: neither model.safetensors nor "
                                                "model.safetensors.index.json nor another *.safetensors file",
                                                folder));
}

using WeightMap = std::map<std::string, std::string>;  // tensor to file name

struct WeightFiles {
  std::vector<std::string> names;
  std::optional<WeightMap> index;
};

// An index comes from the same place as the weights, and must not make us read files elsewhere.
bool is_plain_file_name(const std::string& name) {
  return !name.empty() && name.find_first_of(std::string("/\\\0", 3)) == std::string::npos && name != "." &&
         name != "..";
}

Result<WeightFiles> read_index(const std::string& path) {
  const Result<MappedFile> file = open_text(path, kMaxIndexBytes);
  if (!file) return std::unexpected(file.error());
  Result<WeightMap> index = parse_weight_map(text_of(*file), path);
  if (!index) return std::unexpected(std::move(index.error()));
  std::set<std::string> names;
  for (const auto& [tensor, name] : *index) {
    if (!is_plain_file_name(name)) {
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("'weight_map.{}' of '{}' is '{}', needs the name of a file in the same folder",
                              printable(tensor), path, printable(name)));
    }
    names.insert(name);
  }
  if (names.empty()) return fail(ErrorCode::kInvalidArgument, fmt::format("'weight_map' of '{}' is empty", path));
  return WeightFiles{{names.begin(), names.end()}, std::move(*index)};
}

Result<WeightFiles> find_weights(const std::string& folder) {
  const std::vector<std::string> names = names_in(folder);
  const auto has = [&](const char* name) { return std::ranges::binary_search(names, name); };
  if (has("model.safetensors")) return WeightFiles{{"model.safetensors"}, {}};
  if (has("model.safetensors.index.json")) return read_index(in_folder(folder, "model.safetensors.index.json"));
  const std::vector<std::string> others = with_ending(names, {".safetensors"});
  if (others.empty()) return no_weights(folder, names);
  if (others.size() > 1) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("'{}' has {} safetensors files ('{}', '{}', ...) and no model.safetensors.index.json that "
                            "says what they hold",
                            folder, others.size(), printable(others[0]), printable(others[1])));
  }
  return WeightFiles{others, {}};
}

struct Weights {
  std::vector<MappedFile> files;
  std::vector<std::string> paths;
  std::vector<TensorInfo> tensors;
  std::vector<UnsupportedTensor> unsupported;
};

Result<Weights> open_weights(const std::string& folder, const WeightFiles& found) {
  Weights weights;
  for (const std::string& name : found.names) {
    const std::string path = in_folder(folder, name);
    Result<MappedFile> file = MappedFile::open(path);
    if (!file && file.error().code == ErrorCode::kNotFound) {
      return fail(ErrorCode::kNotFound,
                  fmt::format("shard '{}' that model.safetensors.index.json names is missing: there is no file '{}'",
                              printable(name), path));
    }
    if (!file) return std::unexpected(std::move(file.error()));
    Result<SafetensorsFile> header = parse_safetensors(file->bytes(), path);
    if (!header) return std::unexpected(std::move(header.error()));
    for (TensorInfo& tensor : header->tensors) {
      tensor.file = static_cast<std::int32_t>(weights.files.size());
      weights.tensors.push_back(std::move(tensor));
    }
    std::ranges::move(header->unsupported, std::back_inserter(weights.unsupported));
    weights.files.push_back(std::move(*file));
    weights.paths.push_back(path);
  }
  return weights;
}

// Every tensor of the index is in the file that the index says. Tensors beyond the index are welcome.
Status check_index(const WeightMap& index, const Weights& weights, const TensorTable& table) {
  std::set<std::string_view> unsupported;
  for (const UnsupportedTensor& tensor : weights.unsupported) unsupported.insert(tensor.name);
  for (const auto& [name, file] : index) {
    const TensorInfo* tensor = table.find(name);
    if (tensor == nullptr) {
      if (unsupported.contains(name)) continue;
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("model.safetensors.index.json says that tensor '{}' is in '{}', but no shard has it",
                              printable(name), printable(file)));
    }
    const std::string& path = weights.paths[static_cast<std::size_t>(tensor->file)];
    if (std::filesystem::path(path).filename() != file) {
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("model.safetensors.index.json says that tensor '{}' is in '{}', but it is in '{}'",
                              printable(name), printable(file), path));
    }
  }
  return {};
}

Result<std::string> read_architecture(const JsonMetadata& config) {
  const Result<std::vector<std::string>> names = config.get_strings("architectures");
  if (!names) return std::unexpected(names.error());
  if (names->size() != 1) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("config.json names {} architectures, needs one", names->size()));
  }
  return names->front();
}

}  // namespace

Result<std::unique_ptr<Checkpoint>> open_hugging_face(const std::string& folder) {
  Result<JsonMetadata> config = read_config(in_folder(folder, "config.json"));
  if (!config && config.error().code == ErrorCode::kNotFound) return no_config(folder);
  if (!config) return std::unexpected(std::move(config.error()));
  Result<JsonMetadata> generation = read_generation_config(in_folder(folder, "generation_config.json"));
  if (!generation) return std::unexpected(std::move(generation.error()));
  Result<std::string> architecture = read_architecture(*config);
  if (!architecture) return std::unexpected(std::move(architecture.error()));

  const Result<WeightFiles> found = find_weights(folder);
  if (!found) return std::unexpected(found.error());
  Result<Weights> weights = open_weights(folder, *found);
  if (!weights) return std::unexpected(std::move(weights.error()));
  Result<TensorTable> table = TensorTable::create(std::move(weights->tensors), weights->paths);
  if (!table) return std::unexpected(std::move(table.error()));
  if (found->index) {
    if (const Status status = check_index(*found->index, *weights, *table); !status) {
      return std::unexpected(status.error());
    }
  }
  return std::make_unique<HuggingFaceCheckpoint>(folder, std::move(*architecture), std::move(weights->files),
                                                 std::move(*table), std::move(weights->unsupported), std::move(*config),
                                                 std::move(*generation));
}

}  // namespace thalweg::weights
