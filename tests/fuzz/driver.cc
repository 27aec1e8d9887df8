// Runs a fuzz target on mutated seeds for a bounded time, without help from the compiler.
//
//   X_fuzz [--seconds S] [--seed N] [--keep FILE] [file...]
//
// With files it runs just those, once each. --keep writes each input to FILE before the target sees it, so that after a
// crash FILE holds the input to repeat it with.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "fuzz_target.h"
#include "mutator.h"

namespace {

struct Options {
  double seconds = 3;
  std::uint64_t seed = 1;
  std::string keep;
  std::vector<std::string> files;
};

Options read_options(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    if (argument == "--seconds" && i + 1 < argc) {
      options.seconds = std::atof(argv[++i]);
    } else if (argument == "--seed" && i + 1 < argc) {
      options.seed = std::strtoull(argv[++i], nullptr, 10);
    } else if (argument == "--keep" && i + 1 < argc) {
      options.keep = argv[++i];
    } else {
      options.files.emplace_back(argument);
    }
  }
  return options;
}

// A copy of exactly the right size: a string keeps a zero and spare room behind its end.
void run(const std::string& input) {
  const std::unique_ptr<std::uint8_t[]> copy(new std::uint8_t[input.size()]);
  if (!input.empty()) std::memcpy(copy.get(), input.data(), input.size());
  LLVMFuzzerTestOneInput(copy.get(), input.size());
}

int run_files(const std::vector<std::string>& files) {
  for (const std::string& file : files) {
    std::ifstream stream(file, std::ios::binary);
    if (!stream) {
      std::fprintf(stderr, "cannot read '%s'\n", file.c_str());
      return 1;
    }
    run(std::string(std::istreambuf_iterator<char>(stream), {}));
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const Options options = read_options(argc, argv);
  if (!options.files.empty()) return run_files(options.files);

  const std::vector<std::string> seeds = thalweg::fuzz::seeds();
  for (const std::string& seed : seeds) run(seed);
  thalweg::fuzz::Mutator mutator(options.seed, seeds);
  const auto begin = std::chrono::steady_clock::now();
  const std::chrono::duration<double> limit(options.seconds);
  std::uint64_t num_inputs = 0;
  std::chrono::duration<double> slowest(0);
  auto now = begin;
  while (now - begin < limit) {
    const std::string input = mutator.next();
    if (!options.keep.empty()) std::ofstream(options.keep, std::ios::binary) << input;
    const auto before = std::chrono::steady_clock::now();
    run(input);
    now = std::chrono::steady_clock::now();
    slowest = std::max<std::chrono::duration<double>>(slowest, now - before);
    ++num_inputs;
  }
  std::printf("%llu inputs from %zu seeds, slowest %.1f ms\n", static_cast<unsigned long long>(num_inputs),
              seeds.size(), slowest.count() * 1e3);
  return 0;
}
