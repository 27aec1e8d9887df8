#include "device/cuda/cuda_bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <random>
#include <vector>

#include "device/cuda/graph.h"
#include "device/cuda/roof_bench.h"
#include "device/float_types.h"

namespace thalweg::device {
namespace {

constexpr int kMinLaunches = 20;  // per graph, so that what a graph's start costs is spread
constexpr int kWarmUps = 3;
constexpr int kReplays = 15;
constexpr std::size_t kCopyBytes = std::size_t{4} << 30;

}  // namespace

void end_bench(const Error& error) {
  fmt::print(stderr, "{}\n", error.message);
  std::exit(1);
}

CudaBench::CudaBench(const CudaDevice& device, std::string filter)
    : device_(device),
      filter_(std::move(filter)),
      stream_(require(CudaStream::create(device))),
      start_(require(CudaEvent::create(device, true))),
      end_(require(CudaEvent::create(device, true))) {
  measure_copy();
}

void CudaBench::measure_copy() {
  const CudaArena arena = memory(2 * kCopyBytes);
  std::byte* from = arena.data() + kCopyBytes;
  double best_us = std::numeric_limits<double>::infinity();
  for (const std::int32_t num_loads : {1, 2, 4, 8}) {
    best_us = std::min(
        best_us, median_us({.launch = [&](Stream& stream, std::int32_t) {
          stream.cuda->note("copy", copy_with_kernel(stream.cuda->handle(), arena.data(), from, kCopyBytes, num_loads));
        }}));
  }
  copy_bytes_per_s_ = 2.0 * kCopyBytes / best_us * 1e6;
  fmt::print(R"({{"name": "roof/copy", "device": "{}", "time_us": {:.1f}, "bytes": {}, "bytes_per_s": {:.4g}}})"
             "\n",
             device_.properties().name, best_us, 2 * kCopyBytes, copy_bytes_per_s_);
}

CudaArena CudaBench::memory(std::size_t num_bytes) {
  CudaArena arena = require(CudaArena::reserve(device_, num_bytes));
  require(arena.grow(num_bytes));
  // One block of random numbers from the host, then copies of it: each is doubled until all is filled.
  std::vector<std::uint16_t> block(std::min<std::size_t>(num_bytes, std::size_t{8} << 20) / 2);
  std::minstd_rand random(1);
  std::normal_distribution<float> normal;
  for (std::uint16_t& value : block) value = bf16_from_float(normal(random));
  std::size_t filled = block.size() * 2;
  stream_.copy(arena.data(), block.data(), filled);
  while (filled < num_bytes) {
    const std::size_t next = std::min(filled, num_bytes - filled);
    stream_.copy(arena.data() + filled, arena.data(), next);
    filled += next;
  }
  require(stream_.synchronize());
  return arena;
}

double CudaBench::median_us(const CudaBenchCase& bench_case) {
  Stream stream{.kind = DeviceKind::kCuda, .cuda = &stream_};
  const int rounds = (kMinLaunches + bench_case.num_sets - 1) / bench_case.num_sets;
  const CudaGraph graph = require(CudaGraph::capture(stream_, [&] {
    for (int round = 0; round < rounds; ++round) {
      for (std::int32_t set = 0; set < bench_case.num_sets; ++set) bench_case.launch(stream, set);
    }
  }));
  std::vector<double> times_us;
  for (int replay = 0; replay < kWarmUps + kReplays; ++replay) {
    stream_.record(start_);
    graph.launch(stream_);
    stream_.record(end_);
    require(stream_.synchronize());
    if (replay >= kWarmUps) {
      times_us.push_back(require(end_.elapsed_ms_since(start_)) * 1e3 / (rounds * bench_case.num_sets));
    }
  }
  std::nth_element(times_us.begin(), times_us.begin() + kReplays / 2, times_us.end());
  return times_us[kReplays / 2];
}

void CudaBench::run(const CudaBenchCase& bench_case) {
  if (!wants(bench_case.name)) return;
  const double time_us = median_us(bench_case);
  const double bytes_per_s = static_cast<double>(bench_case.num_bytes) / time_us * 1e6;
  fmt::print(R"({{"name": "{}", "time_us": {:.2f}, "bytes": {}, "bytes_per_s": {:.4g}, "share_of_copy": {:.3f}, )"
             R"("flops": {}, "flops_per_s": {:.4g}}})"
             "\n",
             bench_case.name, time_us, bench_case.num_bytes, bytes_per_s, bytes_per_s / copy_bytes_per_s_,
             bench_case.num_flops, static_cast<double>(bench_case.num_flops) / time_us * 1e6);
  std::fflush(stdout);
}

}  // namespace thalweg::device
