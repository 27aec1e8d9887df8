// Any bytes as a GGUF file: parsed, and if taken, everything in it is read.
#include <cstdlib>
#include <span>
#include <string>
#include <vector>

#include "base/check.h"
#include "fuzz_target.h"
#include "weights/gguf.h"
#include "weights/test_files.h"

namespace {

using namespace thalweg::weights;

std::size_t read_everything(std::span<const std::byte> bytes, const GgufFile& file) {
  const GgufMetadata& metadata = file.metadata;
  std::size_t sum = 0;
  for (const auto& [key, text] : metadata.describe()) {
    sum += text.size();
    sum += metadata.get_int(key).value_or(0) != 0;
    sum += metadata.get_float(key).value_or(0) != 0;
    sum += metadata.get_bool(key).value_or(false);
    sum += metadata.get_string(key).value_or("").size();
    sum += metadata.get_ints(key).value_or(std::vector<std::int64_t>{}).size();
    sum += metadata.get_floats(key).value_or(std::vector<double>{}).size();
    sum += metadata.get_strings(key).value_or(std::vector<std::string>{}).size();
    sum += metadata.float_array(key).value_or(std::vector<float>{}).size();
    sum += metadata.int_array(key).value_or(std::vector<std::int32_t>{}).size();
  }
  for (const TensorInfo& tensor : file.tensors) {
    const auto data = bytes.subspan(tensor.offset, tensor.num_bytes);
    sum += static_cast<std::size_t>(data.front()) + static_cast<std::size_t>(data.back());
    CHECK_GE(static_cast<std::uint64_t>(tensor.num_elements()), 1u);
  }
  return sum;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::span<const std::byte> bytes = std::as_bytes(std::span(data, size));
  const thalweg::Result<GgufFile> file = parse_gguf(bytes, "fuzz.gguf");
  if (file) {
    volatile std::size_t kept = read_everything(bytes, *file);
    static_cast<void>(kept);
    const std::vector<std::string> files{"fuzz.gguf"};
    static_cast<void>(TensorTable::create(file->tensors, files));
  } else {
    CHECK(!file.error().message.empty());
    CHECK_LE(file.error().message.size(), 4096u);
  }
  return 0;
}

std::vector<std::string> thalweg::fuzz::seeds() {
  test_files::Gguf empty;
  test_files::Gguf aligned;
  aligned.alignment = 64;
  aligned.add_u32("general.alignment", 64)
      .add_tensor("a", {1}, 0, "aaaa")
      .add_tensor("b", {2, 2, 2, 2}, 24, "0123456789abcdef");
  test_files::Gguf version2 = test_files::small_gguf();
  version2.version = 2;
  return {test_files::small_gguf().build(), empty.build(), aligned.build(), version2.build()};
}
