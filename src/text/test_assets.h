// Real tokenizer files for tests: too large to keep, fetched into the folder that THALWEG_TEST_ASSETS names.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>

#include "text/tokenizer.h"

namespace thalweg::text {

/// Nothing when no folder is set; tests then skip. A file missing from a folder that is set is a failure.
inline std::optional<std::string> asset_path(const std::string& name) {
  const char* folder = std::getenv("THALWEG_TEST_ASSETS");
  if (folder == nullptr) return std::nullopt;
  return std::string(folder) + "/" + name;
}

/// Empty when the file cannot be read.
inline std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream content;
  content << file.rdbuf();
  return content.str();
}

/// The tokenizer part of a GGUF file that is known to be well-formed, and its chat template.
class GgufTokenizerFile {
 public:
  explicit GgufTokenizerFile(const std::string& path) {
    constexpr std::size_t kHeadBytes = 24 << 20;  // metadata of the test models end before
    std::ifstream file(path, std::ios::binary);
    head_.resize(kHeadBytes);
    file.read(head_.data(), static_cast<std::streamsize>(head_.size()));
    head_.resize(static_cast<std::size_t>(file.gcount()));
    if (head_.starts_with("GGUF")) read();
  }

  GgufVocabulary vocabulary;
  std::string chat_template;

 private:
  template <typename T>
  T take() {
    T value;
    std::memcpy(&value, head_.data() + at_, sizeof(T));
    at_ += sizeof(T);
    return value;
  }

  std::string take_string() {
    const auto size = take<std::uint64_t>();
    at_ += size;
    return head_.substr(at_ - size, size);
  }

  static std::size_t size_of(std::uint32_t type) {
    constexpr std::size_t kSizes[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
    return kSizes[type];
  }

  void read() {
    constexpr std::uint32_t kString = 8;
    constexpr std::uint32_t kArray = 9;
    at_ = 16;
    for (auto num_keys = take<std::uint64_t>(); num_keys > 0; --num_keys) {
      const std::string key = take_string();
      const auto type = take<std::uint32_t>();
      if (type == kString) {
        keep(key, take_string());
      } else if (type == kArray) {
        const auto element = take<std::uint32_t>();
        const auto count = take<std::uint64_t>();
        if (element == kString) {
          for (std::uint64_t i = 0; i < count; ++i) keep_element(key, take_string());
        } else {
          keep_numbers(key, count);
          at_ += count * size_of(element);
        }
      } else {
        keep_number(key);
        at_ += size_of(type);
      }
    }
  }

  void keep(const std::string& key, std::string value) {
    if (key == "tokenizer.ggml.model") vocabulary.model = std::move(value);
    if (key == "tokenizer.ggml.pre") vocabulary.pre = std::move(value);
    if (key == "tokenizer.chat_template") chat_template = std::move(value);
  }

  void keep_element(const std::string& key, std::string value) {
    if (key == "tokenizer.ggml.tokens") vocabulary.tokens.push_back(std::move(value));
    if (key == "tokenizer.ggml.merges") vocabulary.merges.push_back(std::move(value));
  }

  void keep_numbers(const std::string& key, std::uint64_t count) {
    if (key == "tokenizer.ggml.scores") {
      vocabulary.scores.resize(count);
      std::memcpy(vocabulary.scores.data(), head_.data() + at_, count * sizeof(float));
    }
    if (key == "tokenizer.ggml.token_type") {
      vocabulary.types.resize(count);
      std::memcpy(vocabulary.types.data(), head_.data() + at_, count * sizeof(std::int32_t));
    }
  }

  void keep_number(const std::string& key) {
    const auto number = [&] {
      std::int32_t value;
      std::memcpy(&value, head_.data() + at_, sizeof(value));
      return value;
    };
    if (key == "tokenizer.ggml.bos_token_id") vocabulary.bos_token_id = number();
    if (key == "tokenizer.ggml.eos_token_id") vocabulary.eos_token_id = number();
    if (key == "tokenizer.ggml.unknown_token_id") vocabulary.unknown_token_id = number();
    if (key == "tokenizer.ggml.add_bos_token") vocabulary.add_bos = head_[at_] != 0;
    if (key == "tokenizer.ggml.add_eos_token") vocabulary.add_eos = head_[at_] != 0;
    if (key == "tokenizer.ggml.add_space_prefix") vocabulary.add_space_prefix = head_[at_] != 0;
  }

  std::string head_;
  std::size_t at_ = 0;
};

}  // namespace thalweg::text
