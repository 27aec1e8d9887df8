// Reads numbers from a checkpoint's metadata and checks each one. The first thing wrong is kept and reported at the
// end, so that reading code is a plain list of fields.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "thalweg/error.h"
#include "weights/checkpoint.h"

namespace thalweg::models {

/// Bounds far above any model in use; they keep products of sizes inside 64 bits.
inline constexpr std::int64_t kMaxVocabSize = 1 << 22;
inline constexpr std::int64_t kMaxHiddenSize = 1 << 16;
inline constexpr std::int64_t kMaxIntermediateSize = 1 << 20;
inline constexpr std::int64_t kMaxLayers = 1024;
inline constexpr std::int64_t kMaxHeads = 1024;
inline constexpr std::int64_t kMaxHeadDim = 1024;
inline constexpr std::int64_t kMaxPosition = 1 << 28;
inline constexpr std::int64_t kMaxExperts = 4096;

class ConfigReader {
 public:
  /// `prefix` stands before every key: "llama." in a GGUF file, "" or "text_config." in a config.json.
  ConfigReader(const weights::Checkpoint& checkpoint, std::string prefix);

  const weights::Checkpoint& checkpoint() const { return checkpoint_; }
  bool has(std::string_view key) const;

  /// A whole number in [1, max]. Without fallback the key must be there.
  std::int32_t count(std::string_view key, std::int64_t max, std::optional<std::int64_t> fallback = {});
  /// A whole number in [0, max].
  std::int32_t count_or_zero(std::string_view key, std::int64_t max, std::int64_t fallback = 0);
  /// A finite number in [min, max].
  double number(std::string_view key, double min, double max, std::optional<double> fallback = {});
  bool flag(std::string_view key, bool fallback);
  std::string text(std::string_view key, std::string fallback);
  std::vector<std::int64_t> integers(std::string_view key);
  std::vector<std::string> texts(std::string_view key);

  /// Reports a value that contradicts another.
  void reject(std::string_view key, std::string_view found, std::string_view needed);
  /// Reports something understood but not supported.
  void unsupported(std::string_view key, std::string_view found, std::string_view supported);

  /// Keeps a problem that somebody else found.
  void keep(Error error);

  Status status() const;

 private:
  std::string full(std::string_view key) const;

  const weights::Checkpoint& checkpoint_;
  std::string prefix_;
  std::optional<Error> error_;
};

}  // namespace thalweg::models
