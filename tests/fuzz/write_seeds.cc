// Writes a target's seeds into a folder, as the first corpus for libFuzzer.
#include <cstdio>
#include <filesystem>
#include <fstream>

#include "fuzz_target.h"

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: %s FOLDER\n", argv[0]);
    return 2;
  }
  const std::filesystem::path folder = argv[1];
  std::filesystem::create_directories(folder);
  int index = 0;
  for (const std::string& seed : thalweg::fuzz::seeds()) {
    std::ofstream(folder / ("seed" + std::to_string(index++)), std::ios::binary) << seed;
  }
  return 0;
}
