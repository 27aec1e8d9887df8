// Small model files for tests, well formed unless a test asks otherwise.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace thalweg::weights::test_files {

/// A folder of its own, gone with its owner.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "thalweg-test-XXXXXX").string();
    path_ = ::mkdtemp(name.data());
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }

  std::string path() const { return path_.string(); }
  std::string write(const std::string& name, std::string_view content) const {
    std::ofstream(path_ / name, std::ios::binary) << content;
    return (path_ / name).string();
  }

 private:
  std::filesystem::path path_;
};

template <typename T>
std::string bytes_of(T value) {
  return {reinterpret_cast<const char*>(&value), sizeof(value)};
}

inline std::string gguf_string(std::string_view text) { return bytes_of<std::uint64_t>(text.size()).append(text); }

/// A GGUF file in the making; every field may be set to something wrong before build().
struct Gguf {
  struct Pair {
    std::string key;
    std::uint32_t type;
    std::string payload;
  };
  struct Tensor {
    std::string name;
    std::vector<std::uint64_t> dimensions;  // innermost first, as in the file
    std::uint32_t type;
    std::uint64_t offset;
    std::string data;
  };

  std::string magic = "GGUF";
  std::uint32_t version = 3;
  std::optional<std::uint64_t> num_tensors, num_pairs;  // instead of the true counts
  std::uint64_t alignment = 32;
  std::vector<Pair> pairs;
  std::vector<Tensor> tensors;

  template <typename T>
  Gguf& add(const std::string& key, std::uint32_t type, T value) {
    pairs.push_back({key, type, bytes_of(value)});
    return *this;
  }
  Gguf& add_u32(const std::string& key, std::uint32_t value) { return add(key, 4, value); }
  Gguf& add_f32(const std::string& key, float value) { return add(key, 6, value); }
  Gguf& add_bool(const std::string& key, bool value) { return add<std::uint8_t>(key, 7, value); }
  Gguf& add_string(const std::string& key, std::string_view value) {
    pairs.push_back({key, 8, gguf_string(value)});
    return *this;
  }
  Gguf& add_strings(const std::string& key, const std::vector<std::string>& values) {
    std::string payload = bytes_of<std::uint32_t>(8) + bytes_of<std::uint64_t>(values.size());
    for (const std::string& value : values) payload += gguf_string(value);
    pairs.push_back({key, 9, payload});
    return *this;
  }
  template <typename T>
  Gguf& add_array(const std::string& key, std::uint32_t type, const std::vector<T>& values) {
    std::string payload = bytes_of(type) + bytes_of<std::uint64_t>(values.size());
    for (const T& value : values) payload += bytes_of(value);
    pairs.push_back({key, 9, payload});
    return *this;
  }

  /// Behind the tensors that are there.
  Gguf& add_tensor(const std::string& name, std::vector<std::uint64_t> dimensions, std::uint32_t type,
                   std::string data) {
    const std::uint64_t end = tensors.empty() ? 0 : tensors.back().offset + tensors.back().data.size();
    tensors.push_back(
        {name, std::move(dimensions), type, (end + alignment - 1) / alignment * alignment, std::move(data)});
    return *this;
  }

  std::string build() const {
    std::string file = magic + bytes_of(version) + bytes_of<std::uint64_t>(num_tensors.value_or(tensors.size())) +
                       bytes_of<std::uint64_t>(num_pairs.value_or(pairs.size()));
    for (const Pair& pair : pairs) file += gguf_string(pair.key) + bytes_of(pair.type) + pair.payload;
    for (const Tensor& tensor : tensors) {
      file += gguf_string(tensor.name) + bytes_of<std::uint32_t>(tensor.dimensions.size());
      for (const std::uint64_t dimension : tensor.dimensions) file += bytes_of(dimension);
      file += bytes_of(tensor.type) + bytes_of(tensor.offset);
    }
    file.resize((file.size() + alignment - 1) / alignment * alignment);
    const std::size_t begin = file.size();
    for (const Tensor& tensor : tensors) {
      if (tensor.offset > (1 << 20)) continue;  // a lie of the test's
      file.resize(std::max(file.size(), begin + tensor.offset + tensor.data.size()));
      file.replace(begin + tensor.offset, tensor.data.size(), tensor.data);
    }
    return file;
  }
};

/// A toy with every kind of metadata and four types of tensors.
inline Gguf small_gguf() {
  Gguf file;
  file.add_string("general.architecture", "llama")
      .add_u32("llama.block_count", 2)
      .add_f32("llama.rope.freq_base", 10000.0f)
      .add_bool("tokenizer.ggml.add_bos_token", true)
      .add("test.int64", 11, std::int64_t{-7})
      .add("test.uint64", 10, std::uint64_t{1} << 63)
      .add("test.float64", 12, 0.1)
      .add_strings("tokenizer.ggml.tokens", {"<s>", "a", "\xe2\x96\x81word", ""})
      .add_array<float>("tokenizer.ggml.scores", 6, {0.0f, -1.5f, -2.0f, -3.0f})
      .add_array<std::int32_t>("tokenizer.ggml.token_type", 5, {3, 1, 1, 6})
      .add_array<std::uint8_t>("test.bytes", 0, {1, 2, 255})
      .add_tensor("token_embd.weight", {4, 3}, 0, std::string(48, '\1'))
      .add_tensor("blk.0.attn_q.weight", {32, 2}, 3, std::string(40, '\2'))
      .add_tensor("blk.0.ffn_up.weight", {256, 1}, 14, std::string(210, '\3'))
      .add_tensor("output_norm.weight", {3}, 30, std::string(6, '\4'));
  return file;
}

inline std::string safetensors(std::string_view header, std::string_view data) {
  return bytes_of<std::uint64_t>(header.size()).append(header).append(data);
}

/// Spaces behind the header, as the format's libraries put them, so that data is aligned.
inline std::string aligned_safetensors(std::string header, std::string_view data) {
  header.resize((header.size() + 7) / 8 * 8, ' ');
  return safetensors(header, data);
}

}  // namespace thalweg::weights::test_files
