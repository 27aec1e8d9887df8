// Any bytes as a safetensors file: parsed, and if taken, the ends of every tensor are read.
#include <span>
#include <string>
#include <vector>

#include "base/check.h"
#include "fuzz_target.h"
#include "weights/safetensors.h"
#include "weights/test_files.h"

namespace {

using namespace thalweg::weights;

std::string seed(std::string header, std::size_t num_bytes) {
  return test_files::aligned_safetensors(std::move(header), std::string(num_bytes, 'x'));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::span<const std::byte> bytes = std::as_bytes(std::span(data, size));
  const thalweg::Result<SafetensorsFile> file = parse_safetensors(bytes, "fuzz.safetensors");
  if (!file) {
    CHECK(!file.error().message.empty());
    CHECK_LE(file.error().message.size(), 4096u);
    return 0;
  }
  std::size_t sum = 0;
  for (const TensorInfo& tensor : file->tensors) {
    const auto content = bytes.subspan(tensor.offset, tensor.num_bytes);
    CHECK_EQ(static_cast<std::uint64_t>(tensor.num_elements()) *
                 static_cast<std::uint64_t>(thalweg::device::block_layout(tensor.dtype).num_bytes),
             tensor.num_bytes);
    if (!content.empty()) sum += static_cast<std::size_t>(content.front()) + static_cast<std::size_t>(content.back());
  }
  volatile std::size_t kept = sum;
  static_cast<void>(kept);
  return 0;
}

std::vector<std::string> thalweg::fuzz::seeds() {
  return {
      seed("{}", 0),
      seed(R"({"__metadata__":{"format":"pt"},"b":{"dtype":"BF16","shape":[2,3],"data_offsets":[4,16]},)"
           R"("a":{"dtype":"F32","shape":[],"data_offsets":[0,4]}})",
           16),
      seed(R"({"w":{"dtype":"F8_E4M3","shape":[8,4],"data_offsets":[0,32]},"e":{"dtype":"I8","shape":[0],)"
           R"("data_offsets":[32,32]},"s\u0041":{"dtype":"I64","shape":[1],"data_offsets":[32,40]},)"
           R"("d":{"dtype":"F64","shape":[1,1],"data_offsets":[40,48]}})",
           48),
  };
}
