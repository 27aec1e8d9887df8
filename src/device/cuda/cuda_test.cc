// The device layer on a real GPU.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <span>
#include <vector>

#include "device/cuda/arena.h"
#include "device/cuda/graph.h"
#include "device/cuda/pinned_ring.h"
#include "device/cuda/stream.h"
#include "device/cuda/test_device.h"

namespace thalweg::device {
namespace {

using testing::AllOf;
using testing::Each;
using testing::HasSubstr;

constexpr std::size_t kMiB = std::size_t{1} << 20;

CudaArena grown_arena(const CudaDevice& device, std::size_t num_bytes) {
  CudaArena arena = CudaArena::reserve(device, num_bytes).value();
  EXPECT_TRUE(arena.grow(num_bytes));
  return arena;
}

std::vector<std::uint8_t> read_back(CudaStream& stream, const std::byte* from, std::size_t num_bytes) {
  std::vector<std::uint8_t> bytes(num_bytes);
  stream.copy(bytes.data(), from, num_bytes);
  EXPECT_TRUE(stream.synchronize());
  return bytes;
}

bool all_are(std::span<const std::uint8_t> bytes, std::uint8_t value) {
  return std::all_of(bytes.begin(), bytes.end(), [&](std::uint8_t byte) { return byte == value; });
}

TEST(CudaDevice, TellsWhatItIs) {
  const CudaDevice device = test_device();
  EXPECT_EQ(device.properties().major, 9);
  EXPECT_GT(device.properties().num_multiprocessors, 100);
  EXPECT_GT(device.properties().max_shared_bytes_per_block, 200 * 1024);
  const CudaMemory memory = device.memory().value();
  EXPECT_GT(memory.free_bytes, 0U);
  EXPECT_LE(memory.free_bytes, memory.total_bytes);
}

TEST(CudaStream, CopiesInOrder) {
  const CudaDevice device = test_device();
  CudaStream stream = CudaStream::create(device).value();
  CudaArena arena = grown_arena(device, 4 * kMiB);
  std::byte* first = arena.take(kMiB);
  std::byte* second = arena.take(kMiB);
  std::vector<std::uint8_t> bytes(kMiB);
  std::iota(bytes.begin(), bytes.end(), 3);
  stream.fill(second, 0xab, kMiB);
  stream.copy(first, bytes.data(), kMiB);
  stream.copy(second + 1, first, kMiB / 2);
  const std::vector<std::uint8_t> got = read_back(stream, second, kMiB);
  EXPECT_EQ(got[0], 0xab);
  EXPECT_TRUE(std::equal(got.begin() + 1, got.begin() + 1 + kMiB / 2, bytes.begin()));
  EXPECT_TRUE(all_are(std::span(got).subspan(1 + kMiB / 2), 0xab));
}

TEST(CudaStream, WaitsForEventsOfOthers) {
  const CudaDevice device = test_device();
  CudaStream writer = CudaStream::create(device).value();
  CudaStream reader = CudaStream::create(device).value();
  CudaArena arena = grown_arena(device, 512 * kMiB);
  const CudaEvent start = CudaEvent::create(device, true).value();
  const CudaEvent written = CudaEvent::create(device, true).value();
  for (std::uint8_t round = 1; round < 6; ++round) {
    writer.record(start);
    for (int i = 0; i < 8; ++i) writer.fill(arena.data(), static_cast<std::uint8_t>(round + 100 * (i < 7)), 512 * kMiB);
    writer.record(written);
    reader.wait(written);
    EXPECT_THAT(read_back(reader, arena.data() + 511 * kMiB, 100), Each(round));
    EXPECT_TRUE(written.is_done().value());
    EXPECT_GT(written.elapsed_ms_since(start).value(), 0.0F);
    ASSERT_TRUE(writer.synchronize());
  }
}

TEST(CudaStream, KeepsTheFirstFailure) {
  const CudaDevice device = test_device();
  CudaStream stream = CudaStream::create(device).value();
  CudaArena arena = CudaArena::reserve(device, kMiB).value();  // no memory behind it
  stream.fill(arena.data(), 0, 16);
  ASSERT_FALSE(stream.status());
  EXPECT_THAT(stream.status().error().message, AllOf(HasSubstr("CUDA device 0"), HasSubstr("cudaMemsetAsync failed")));
  const std::string first = stream.status().error().message;
  CudaArena good = grown_arena(device, kMiB);
  stream.fill(good.data(), 0, 16);
  EXPECT_EQ(stream.synchronize().error().message, first);
  // Others are not blamed.
  CudaStream other = CudaStream::create(device).value();
  other.fill(good.data(), 7, 16);
  EXPECT_THAT(read_back(other, good.data(), 16), Each(7));
}

TEST(CudaArena, SleepsAndWakesAtTheSameAddresses) {
  const CudaDevice device = test_device();
  CudaStream stream = CudaStream::create(device).value();
  const std::size_t size = 1024 * kMiB;
  CudaArena arena = CudaArena::reserve(device, 4 * size).value();
  const std::size_t free_before = device.memory()->free_bytes;
  ASSERT_TRUE(arena.grow(size));
  std::byte* place = arena.take(1000);
  ASSERT_TRUE(arena.grow(2 * size));
  EXPECT_EQ(arena.take(10), place + 1024);
  stream.fill(arena.data(), 1, 2 * size);  // across the two parts
  ASSERT_TRUE(stream.synchronize());
  EXPECT_GE(free_before - device.memory()->free_bytes, 2 * size);
  ASSERT_TRUE(arena.sleep());
  EXPECT_EQ(arena.mapped_bytes(), 0U);
  EXPECT_LE(free_before - device.memory()->free_bytes, 64 * kMiB);
  ASSERT_TRUE(arena.wake());
  EXPECT_EQ(arena.mapped_bytes(), 2 * size);
  stream.fill(place, 9, 2 * size);
  EXPECT_THAT(read_back(stream, arena.data() + 2 * size - 10, 10), Each(9));
}

TEST(CudaArena, SaysHowMuchIsShort) {
  const CudaDevice device = test_device();
  const CudaMemory memory = device.memory().value();
  CudaArena arena = CudaArena::reserve(device, 2 * memory.total_bytes).value();
  const Status status = arena.grow(memory.total_bytes + 1024 * kMiB);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::kResourceExhausted);
  EXPECT_THAT(status.error().message, HasSubstr("has too little memory by"));
  EXPECT_EQ(arena.mapped_bytes(), 0U);
  EXPECT_TRUE(arena.grow(kMiB));
}

TEST(CudaGraph, ReplaysOnTheSameAddresses) {
  const CudaDevice device = test_device();
  CudaStream stream = CudaStream::create(device).value();
  CudaArena arena = grown_arena(device, 2 * kMiB);
  std::byte* from = arena.take(kMiB);
  std::byte* to = arena.take(kMiB);
  stream.fill(to, 0, kMiB);
  ASSERT_TRUE(stream.synchronize());
  const CudaGraph graph = CudaGraph::capture(stream, [&] { stream.copy(to, from, kMiB); }).value();
  EXPECT_THAT(read_back(stream, to, 4), Each(0));  // capturing runs nothing
  for (const std::uint8_t value : {5, 6}) {
    stream.fill(from, value, kMiB);
    graph.launch(stream);
    EXPECT_TRUE(all_are(read_back(stream, to, kMiB), value));
  }
}

TEST(PinnedRing, ASlotIsNotGivenOutWhileItIsRead) {
  const CudaDevice device = test_device();
  CudaStream stream = CudaStream::create(device).value();
  const std::size_t size = 16 * kMiB;
  const int num_turns = 40;
  CudaArena arena = grown_arena(device, num_turns * size);
  PinnedRing ring = PinnedRing::create(device, 2, size).value();
  for (int turn = 0; turn < num_turns; ++turn) {
    const std::span<std::byte> slot = ring.acquire().value();
    ASSERT_EQ(slot.size(), size);
    std::memset(slot.data(), turn, size);
    stream.copy(arena.data() + turn * size, slot.data(), size);
    ring.release(stream);
  }
  for (int turn = 0; turn < num_turns; ++turn) {
    ASSERT_TRUE(all_are(read_back(stream, arena.data() + turn * size, size), static_cast<std::uint8_t>(turn)));
  }
}

TEST(CudaDevice, ReachesItsPeers) {
  const std::vector<CudaDevice> devices = open_cuda_devices(*thalweg_cuda_table()).value();
  if (devices.size() < 2) GTEST_SKIP() << "one GPU only";
  ASSERT_TRUE(devices[0].enable_peer_access(devices[1]));
  ASSERT_TRUE(devices[0].enable_peer_access(devices[1]));
  CudaArena there = CudaArena::reserve(devices[1], kMiB, {&devices[0], 1}).value();
  ASSERT_TRUE(there.grow(kMiB));
  ASSERT_TRUE(devices[0].make_current());
  CudaStream stream = CudaStream::create(devices[0]).value();
  stream.fill(there.data(), 3, kMiB);
  EXPECT_TRUE(all_are(read_back(stream, there.data(), kMiB), 3));
}

}  // namespace
}  // namespace thalweg::device
