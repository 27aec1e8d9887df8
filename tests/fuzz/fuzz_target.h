// What a fuzz target consists of. The function's name is libFuzzer's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

/// Must take any bytes without fault and return 0. `data` holds exactly `size` bytes, so that a sanitizer sees a
/// read behind them.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace thalweg::fuzz {

/// Well-formed inputs, small, one per feature of the format; mutation starts from them.
std::vector<std::string> seeds();

}  // namespace thalweg::fuzz
