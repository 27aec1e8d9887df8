// A checkpoint opened for use: weights and text are read at the same time.
#pragma once

#include <memory>
#include <string>

#include "apps/model_text.h"
#include "device/dtype.h"
#include "device/stream.h"
#include "device/thread_pool.h"
#include "models/load_options.h"
#include "models/model.h"
#include "thalweg/engine.h"
#include "thalweg/error.h"
#include "weights/checkpoint.h"

namespace thalweg::apps {

/// An engine and the text side of its model.
struct ServedModel {
  ModelText text;
  std::unique_ptr<Engine> engine;
};

Result<ServedModel> load_served_model(const EngineOptions& options, const LoadProgress& progress);

/// A model without an engine, for commands that call it directly. Members in the order of their dependence.
struct BareModel {
  std::unique_ptr<weights::Checkpoint> checkpoint;
  std::unique_ptr<device::ThreadPool> threads;
  device::Stream stream;
  std::unique_ptr<models::Model> model;
};

Result<BareModel> load_bare_model(const std::string& path, int num_threads, const models::LoadOptions& options);

/// "f32", "f16" or "bf16"; anything else is a programmer's mistake, the command line has checked it.
device::DType kv_dtype_of(const std::string& name);

/// The path as given, or the file of a model in the cache folder that has this name.
Result<std::string> resolve_model(const std::string& path_or_name);

/// $THALWEG_CACHE, or thalweg/ in $XDG_CACHE_HOME or ~/.cache.
std::string cache_folder();

}  // namespace thalweg::apps
