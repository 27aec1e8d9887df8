#include "apps/loaded_model.h"

#include <fmt/format.h>

#include <cstdlib>
#include <filesystem>
#include <future>
#include <utility>

#include "apps/model_catalog.h"
#include "base/check.h"
#include "base/clock.h"
#include "engine/engine_loop.h"
#include "models/registry.h"
#include "text/engram_token_map.h"
#include "worker/make_worker.h"

namespace thalweg::apps {
namespace {

ModelDescription describe(const std::string& path, const models::ModelInfo& info,
                          const std::vector<std::int32_t>& eos_token_ids) {
  ModelDescription description;
  std::filesystem::path name(path);
  if (!name.has_filename()) name = name.parent_path();
  description.name = name.extension() == ".gguf" ? name.stem().string() : name.filename().string();
  description.architecture = info.architecture;
  description.vocab_size = info.vocab_size;
  description.max_model_len = info.max_position;
  description.num_parameters = info.num_parameters;
  description.weight_bytes = info.weight_bytes;
  description.kv_bytes_per_token = info.cache.bytes_per_block / info.cache.block_size;
  description.eos_token_ids = eos_token_ids;
  return description;
}

}  // namespace

device::DType kv_dtype_of(const std::string& name) {
  if (name == "f32") return device::DType::kF32;
  if (name == "bf16") return device::DType::kBF16;
  CHECK_EQ(name, "f16");
  return device::DType::kF16;
}

std::string cache_folder() {
  if (const char* folder = std::getenv("THALWEG_CACHE")) return folder;
  if (const char* folder = std::getenv("XDG_CACHE_HOME")) return std::string(folder) + "/thalweg";
  const char* home = std::getenv("HOME");
  return std::string(home == nullptr ? "." : home) + "/.cache/thalweg";
}

Result<std::string> resolve_model(const std::string& path_or_name) {
  std::error_code error;
  if (std::filesystem::exists(path_or_name, error)) return path_or_name;
  const CatalogEntry* entry = find_in_catalog(path_or_name);
  if (entry == nullptr) {
    return fail(ErrorCode::kNotFound,
                fmt::format("no file, folder or known model '{}'; `thalweg models` lists the known ones", path_or_name),
                "model");
  }
  std::string path = fmt::format("{}/models/{}", cache_folder(), entry->file);
  if (!std::filesystem::exists(path, error)) {
    return fail(ErrorCode::kNotFound,
                fmt::format("{} is not in the cache yet; fetch it with `thalweg pull {}`", path_or_name, entry->name),
                "model");
  }
  return path;
}

Result<BareModel> load_bare_model(const std::string& path, int num_threads, const models::LoadOptions& options) {
  auto resolved = resolve_model(path);
  if (!resolved) return std::unexpected(resolved.error());
  auto checkpoint = weights::Checkpoint::open(*resolved);
  if (!checkpoint) return std::unexpected(checkpoint.error());
  BareModel bare;
  bare.checkpoint = std::move(*checkpoint);
  bare.threads = std::make_unique<device::ThreadPool>(num_threads > 0 ? num_threads : device::num_usable_cpus());
  bare.stream.cpu_level = device::detect_cpu_level();
  bare.stream.threads = bare.threads.get();
  models::LoadOptions complete = options;
  complete.token_classes = [&]() -> Result<std::vector<std::int32_t>> {
    auto text = read_model_text(*bare.checkpoint);
    if (!text) return std::unexpected(text.error());
    return text::engram_token_map(*text->tokenizer);
  };
  auto model = models::load_model(*bare.checkpoint, bare.stream, complete);
  if (!model) return std::unexpected(model.error());
  bare.model = std::move(*model);
  return bare;
}

Result<ServedModel> load_served_model(const EngineOptions& options, const LoadProgress& progress) {
  auto path = resolve_model(options.model_path);
  if (!path) return std::unexpected(path.error());
  // A checkpoint of its own for the text keeps the two halves free of each other; opening one costs little.
  auto reading_text = std::async(std::launch::async, [&]() -> Result<ModelText> {
    auto checkpoint = weights::Checkpoint::open(*path);
    if (!checkpoint) return std::unexpected(checkpoint.error());
    return read_model_text(**checkpoint);
  });
  models::LoadOptions load_options;
  load_options.progress = progress;
  load_options.prefill_tail_tokens = options.replay_tokens;
  load_options.replays_whole_hits = options.replay_tokens == 0;
  load_options.max_draft_tokens = options.num_draft_tokens;
  load_options.loads_draft_model = options.num_draft_tokens > 0 && options.speculation.source == DraftSource::kModel;
  auto bare = load_bare_model(*path, options.num_threads, load_options);
  auto text = reading_text.get();
  if (!bare) return std::unexpected(bare.error());
  if (!text) return std::unexpected(text.error());

  const models::ModelInfo info = bare->model->info();
  worker::WorkerOptions worker_options;
  worker_options.max_model_len = options.max_model_len;
  worker_options.max_num_seqs = options.max_num_seqs;
  worker_options.max_num_batched_tokens = options.max_num_batched_tokens;
  worker_options.kv_cache_bytes = options.kv_cache_bytes;
  worker_options.num_draft_tokens = options.num_draft_tokens;
  worker_options.speculation = options.speculation;
  worker_options.eos_token_ids = text->eos_token_ids;
  auto executor =
      worker::make_cpu_worker(std::move(bare->model), bare->stream, worker_options, std::move(bare->threads));
  if (!executor) return std::unexpected(executor.error());
  ServedModel served;
  static const SteadyClock clock;  // has no state
  served.engine = engine::make_engine(std::move(*executor), describe(*path, info, text->eos_token_ids), options, clock);
  served.text = std::move(*text);
  return served;
}

}  // namespace thalweg::apps

namespace thalweg {

Result<std::unique_ptr<Engine>> open_engine(const EngineOptions& options, const LoadProgress& progress) {
  auto served = apps::load_served_model(options, progress);
  if (!served) return std::unexpected(served.error());
  return std::move(served->engine);
}

}  // namespace thalweg
