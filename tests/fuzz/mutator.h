// Random changes to inputs, the same for the same seed.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace thalweg::fuzz {

/// Flips bits, plants interesting numbers, moves, repeats and cuts ranges, and joins parts of two inputs.
class Mutator {
 public:
  Mutator(std::uint64_t seed, std::vector<std::string> corpus) : random_(seed), corpus_(std::move(corpus)) {}

  /// A member of the corpus with one to eight changes.
  std::string next() {
    std::string input = corpus_[below(corpus_.size())];
    for (std::size_t changes = 1 + below(8); changes > 0; --changes) change(input);
    if (input.size() > kMaxBytes) input.resize(kMaxBytes);
    return input;
  }

 private:
  static constexpr std::size_t kMaxBytes = 1 << 16;

  std::size_t below(std::size_t limit) { return std::uniform_int_distribution<std::size_t>(0, limit - 1)(random_); }

  void change(std::string& input) {
    if (input.empty()) {
      input = corpus_[below(corpus_.size())];
      return;
    }
    switch (below(8)) {
      case 0:
        input[below(input.size())] ^= static_cast<char>(1u << below(8));
        break;
      case 1:
        input[below(input.size())] = static_cast<char>(below(256));
        break;
      case 2:
        plant_number(input);
        break;
      case 3:
        plant_text(input);
        break;
      case 4:
        input.erase(below(input.size()), 1 + below(16));
        break;
      case 5:
        input.resize(below(input.size() + 1));
        break;
      case 6:
        repeat_range(input);
        break;
      default:
        join(input);
        break;
    }
  }

  void plant_number(std::string& input) {
    const std::uint64_t kNumbers[] = {0,          1,          0x7f,         0x80,       0xff,       0x7fff,
                                      0xffff,     0x10000,    0x7fffffff,   0x80000000, 0xffffffff, 1ull << 32,
                                      1ull << 42, 1ull << 60, 1ull << 62,   ~0ull >> 1, 1ull << 63, ~0ull,
                                      ~0ull - 7,  33,         input.size(), 1ull << 31, ~0ull - 31};
    const std::uint64_t number = kNumbers[below(std::size(kNumbers))];
    const std::size_t width = std::size_t{1} << below(4);
    if (input.size() < width) return;
    const std::size_t position = below(input.size() - width + 1);
    for (std::size_t i = 0; i < width; ++i) input[position + i] = static_cast<char>(number >> (8 * i));
  }

  // For the formats that are text.
  void plant_text(std::string& input) {
    static const char* const kTexts[] = {"-1",
                                         "1e400",
                                         "18446744073709551616",
                                         "9223372036854775807",
                                         "null",
                                         "{",
                                         "}",
                                         "[[[[[[[[[[[[[[[[",
                                         "]",
                                         "\"",
                                         "\\u0000",
                                         "\\ud800",
                                         ",",
                                         ":",
                                         "../",
                                         "\xff",
                                         "0.1",
                                         "true",
                                         "\"\":",
                                         "\r\n",
                                         "\xf0\x9f\x98\x80"};
    const std::string text = kTexts[below(std::size(kTexts))];
    const std::size_t position = below(input.size());
    if (below(2) == 0) {
      input.insert(position, text);
    } else {
      input.replace(position, std::min(text.size(), input.size() - position), text);
    }
  }

  void repeat_range(std::string& input) {
    const std::size_t begin = below(input.size());
    const std::string range = input.substr(begin, 1 + below(64));
    std::string repeated;
    for (std::size_t times = 1 + below(4); times > 0; --times) repeated += range;
    input.insert(below(input.size() + 1), repeated);
  }

  void join(std::string& input) {
    const std::string& other = corpus_[below(corpus_.size())];
    if (other.empty()) return;
    input = input.substr(0, below(input.size() + 1)) + other.substr(below(other.size()));
  }

  std::mt19937_64 random_;
  const std::vector<std::string> corpus_;
};

}  // namespace thalweg::fuzz
