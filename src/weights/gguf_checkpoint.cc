// A GGUF file, or the files that a split one consists of, as a checkpoint.
#include <fmt/core.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/mapped_file.h"
#include "weights/gguf.h"
#include "weights/mapped_checkpoint.h"
#include "weights/printable.h"

namespace thalweg::weights {
namespace {

class GgufCheckpoint final : public MappedCheckpoint {
 public:
  GgufCheckpoint(std::string path, std::string architecture, std::vector<MappedFile> files, TensorTable table,
                 GgufMetadata metadata)
      : MappedCheckpoint(std::move(path), std::move(architecture), std::move(files), std::move(table)),
        metadata_(std::move(metadata)) {}

  CheckpointKind kind() const override { return CheckpointKind::kGguf; }
  const Metadata& metadata() const override { return metadata_; }
  const GgufMetadata* gguf_metadata() const override { return &metadata_; }

 private:
  const GgufMetadata metadata_;  // views into the mapped files
};

struct Shard {
  MappedFile file;
  GgufFile header;
};

Result<Shard> open_shard(const std::string& path) {
  Result<MappedFile> file = MappedFile::open(path);
  if (!file) return std::unexpected(std::move(file.error()));
  Result<GgufFile> header = parse_gguf(file->bytes(), path);
  if (!header) return std::unexpected(std::move(header.error()));
  return Shard{std::move(*file), std::move(*header)};
}

// What a file says of the split it belongs to; a count of 1 means that it stands alone.
struct SplitPlace {
  std::int64_t count = 1;
  std::int64_t index = 0;
};

Result<SplitPlace> split_place(const Shard& shard) {
  const GgufMetadata& metadata = shard.header.metadata;
  if (!metadata.has("split.count")) return SplitPlace{};
  const Result<std::int64_t> count = metadata.get_int("split.count");
  if (!count) return std::unexpected(count.error());
  if (*count == 0 || *count == 1) return SplitPlace{};
  const Result<std::int64_t> index = metadata.get_int("split.no");
  if (!index) return std::unexpected(index.error());
  if (*count < 0 || *count > 99999 || *index < 0 || *index >= *count) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("'{}' says it is shard split.no {} of split.count {}", shard.file.path(), *index, *count));
  }
  return SplitPlace{*count, *index};
}

std::string shard_suffix(std::int64_t index, std::int64_t count) {
  return fmt::format("-{:05}-of-{:05}.gguf", index + 1, count);
}

// The part of the path that all shards share; empty when the name does not say which shard this is.
std::optional<std::string> split_prefix(const std::string& path, const SplitPlace& place) {
  const std::string suffix = shard_suffix(place.index, place.count);
  if (!path.ends_with(suffix)) return std::nullopt;
  return path.substr(0, path.size() - suffix.size());
}

Result<std::vector<Shard>> open_all_shards(const std::string& path, Shard given, const SplitPlace& place) {
  const std::optional<std::string> prefix = split_prefix(path, place);
  if (!prefix) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("'{}' is shard {} of {}, so its name must end in '{}' for the others to be found", path,
                            place.index + 1, place.count, shard_suffix(place.index, place.count)));
  }
  std::vector<Shard> shards;
  for (std::int64_t i = 0; i < place.count; ++i) {
    if (i == place.index) {
      shards.push_back(std::move(given));
      continue;
    }
    const std::string sibling = *prefix + shard_suffix(i, place.count);
    Result<Shard> shard = open_shard(sibling);
    if (!shard && shard.error().code == ErrorCode::kNotFound) {
      return fail(ErrorCode::kNotFound, fmt::format("shard {} of {} of '{}' is missing: there is no file '{}'", i + 1,
                                                    place.count, path, sibling));
    }
    if (!shard) return std::unexpected(std::move(shard.error()));
    const Result<SplitPlace> found = split_place(*shard);
    if (!found) return std::unexpected(found.error());
    if (found->count != place.count || found->index != i) {
      return fail(ErrorCode::kInvalidArgument, fmt::format("'{}' says it is shard {} of {}, needs {} of {}", sibling,
                                                           found->index + 1, found->count, i + 1, place.count));
    }
    shards.push_back(std::move(*shard));
  }
  return shards;
}

Status check_total(const GgufMetadata& metadata, std::size_t num_tensors, const std::string& path) {
  if (!metadata.has("split.tensors.count")) return {};
  const Result<std::int64_t> total = metadata.get_int("split.tensors.count");
  if (!total) return std::unexpected(total.error());
  if (*total == static_cast<std::int64_t>(num_tensors)) return {};
  return fail(
      ErrorCode::kInvalidArgument,
      fmt::format("the shards of '{}' hold {} tensors, split.tensors.count says {}", path, num_tensors, *total));
}

Result<std::unique_ptr<Checkpoint>> join(const std::string& path, std::vector<Shard> shards) {
  std::vector<MappedFile> files;
  std::vector<std::string> paths;
  std::vector<TensorInfo> tensors;
  for (Shard& shard : shards) {
    for (TensorInfo& tensor : shard.header.tensors) {
      tensor.file = static_cast<std::int32_t>(files.size());
      tensors.push_back(std::move(tensor));
    }
    paths.push_back(shard.file.path());
    files.push_back(std::move(shard.file));
  }
  GgufMetadata& metadata = shards.front().header.metadata;  // the other shards hold only split.*
  if (shards.size() > 1) {
    if (const Status status = check_total(metadata, tensors.size(), path); !status) {
      return std::unexpected(status.error());
    }
  }
  Result<std::string> architecture = metadata.get_string("general.architecture");
  if (!architecture) return std::unexpected(std::move(architecture.error()));
  Result<TensorTable> table = TensorTable::create(std::move(tensors), paths);
  if (!table) return std::unexpected(std::move(table.error()));
  return std::make_unique<GgufCheckpoint>(path, std::move(*architecture), std::move(files), std::move(*table),
                                          std::move(metadata));
}

}  // namespace

Result<std::unique_ptr<Checkpoint>> open_gguf(const std::string& path) {
  Result<Shard> given = open_shard(path);
  if (!given) return std::unexpected(std::move(given.error()));
  const Result<SplitPlace> place = split_place(*given);
  if (!place) return std::unexpected(place.error());
  std::vector<Shard> shards;
  if (place->count == 1) {
    shards.push_back(std::move(*given));
  } else {
    Result<std::vector<Shard>> all = open_all_shards(path, std::move(*given), *place);
    if (!all) return std::unexpected(std::move(all.error()));
    shards = std::move(*all);
  }
  return join(path, std::move(shards));
}

}  // namespace thalweg::weights
