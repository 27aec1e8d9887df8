// What the program does about drivers, devices and memory, with a fake in the library's place.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "device/cuda/arena.h"
#include "device/cuda/device.h"
#include "device/cuda/fake_table.h"
#include "device/cuda/graph.h"
#include "device/cuda/library.h"
#include "device/cuda/memory_plan.h"
#include "device/cuda/pinned_ring.h"
#include "device/cuda/stream.h"

namespace thalweg::device {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr std::size_t kMiB = std::size_t{1} << 20;
constexpr CudaStatus kIllegalAddress = {CudaFailure::kSticky, 700, "cudaStreamSynchronize", "cudaErrorIllegalAddress",
                                        "an illegal memory access was encountered"};

TEST(CudaLibrary, NoDriverIsASentence) {
  const auto table = load_cuda_library({.driver = "libnosuchdriver.so.1"});
  ASSERT_FALSE(table);
  EXPECT_EQ(table.error().code, ErrorCode::kNotFound);
  EXPECT_EQ(table.error().message, "no NVIDIA driver is installed (libnosuchdriver.so.1 was not found)");
}

// Any library of the system stands for a driver that is there.
TEST(CudaLibrary, AMissingLibraryNamesTheWayOut) {
  const auto table = load_cuda_library({.driver = "libc.so.6", .library = "/nowhere/libthalweg_cuda.so"});
  ASSERT_FALSE(table);
  EXPECT_EQ(table.error().code, ErrorCode::kNotFound);
  EXPECT_THAT(table.error().message, AllOf(HasSubstr("/nowhere/libthalweg_cuda.so cannot be loaded"),
                                           HasSubstr("make cuda"), HasSubstr("THALWEG_CUDA_LIBRARY")));
}

TEST(CudaLibrary, AnotherLibraryIsRefused) {
  const auto table = load_cuda_library({.driver = "libc.so.6", .library = "libc.so.6"});
  ASSERT_FALSE(table);
  EXPECT_EQ(table.error().message, "libc.so.6 has no thalweg_cuda_table");
}

TEST(CudaLibrary, AnotherBuildIsRefused) {
  CudaTable table = make_fake_table();
  EXPECT_TRUE(check_cuda_border(table, "libthalweg_cuda.so"));
  table.border = "0123456789abcdef";
  const Status status = check_cuda_border(table, "libthalweg_cuda.so");
  ASSERT_FALSE(status);
  EXPECT_THAT(status.error().message, AllOf(HasSubstr("another build"), HasSubstr("0123456789abcdef")));
}

TEST(CudaLibrary, AnOldDriverIsToldWhatIsNeeded) {
  const CudaTable table = make_fake_table();
  EXPECT_TRUE(check_cuda_driver(table));
  fake_cuda().driver_version = 12080;
  const Status old = check_cuda_driver(table);
  ASSERT_FALSE(old);
  EXPECT_EQ(old.error().message, "the NVIDIA driver serves CUDA 12.8, 13.0 is needed; install driver 580 or newer");
  fake_cuda().driver_version = 0;
  EXPECT_EQ(check_cuda_driver(table).error().code, ErrorCode::kNotFound);
}

TEST(CudaDevice, AnotherChipIsRefusedByName) {
  const CudaTable table = make_fake_table();
  fake_cuda().num_devices = 2;
  EXPECT_EQ(open_cuda_devices(table)->size(), 2U);
  fake_cuda().major = 8;
  const auto devices = open_cuda_devices(table);
  ASSERT_FALSE(devices);
  EXPECT_EQ(devices.error().message,
            "CUDA device 0 (NVIDIA Fake) has compute capability 8.0, 9.0 is needed (H100, H200); "
            "CUDA device 1 (NVIDIA Fake) has compute capability 8.0, 9.0 is needed (H100, H200)");
  fake_cuda().num_devices = 0;
  EXPECT_EQ(open_cuda_devices(table).error().message, "the NVIDIA driver shows no GPU to this process");
}

TEST(CudaMemoryPlan, SaysByHowMuchItIsShortAndOfWhat) {
  const CudaTable table = make_fake_table();
  const CudaDevice device = CudaDevice::open(table, 0).value();
  const std::vector<PlannedMemory> parts{{"weights", 700 * kMiB}, {"KV cache", 400 * kMiB}};
  EXPECT_TRUE(check_memory(device, parts, 1100 * kMiB));
  const Status status = check_memory(device, parts, 1024 * kMiB);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::kResourceExhausted);
  EXPECT_EQ(status.error().message,
            "CUDA device 0 (NVIDIA Fake) has too little memory by 76.0 MiB (weights 700.0 MiB, KV cache 400.0 MiB: "
            "1.1 GiB of 1.0 GiB free)");
}

TEST(CudaArena, SleepsAndWakesAtTheSameAddresses) {
  const CudaTable table = make_fake_table();
  const CudaDevice device = CudaDevice::open(table, 0).value();
  {
    CudaArena arena = CudaArena::reserve(device, 100 * kMiB + 1).value();
    EXPECT_EQ(arena.reserved_bytes(), 102 * kMiB);
    EXPECT_EQ(fake_cuda().used_bytes, 0U);
    ASSERT_TRUE(arena.grow(3 * kMiB));
    EXPECT_EQ(arena.mapped_bytes(), 4 * kMiB);
    std::byte* first = arena.take(300);
    std::byte* second = arena.take(kMiB);
    EXPECT_EQ(second, first + 512);
    first[0] = second[kMiB - 1] = std::byte{7};
    ASSERT_TRUE(arena.grow(4 * kMiB));  // there already
    EXPECT_EQ(fake_cuda().num_mappings, 1);
    ASSERT_TRUE(arena.grow(20 * kMiB));
    EXPECT_EQ(first[0], std::byte{7});

    ASSERT_TRUE(arena.sleep());
    EXPECT_EQ(fake_cuda().used_bytes, 0U);
    EXPECT_EQ(fake_cuda().num_mappings, 0);
    ASSERT_TRUE(arena.sleep());
    fake_cuda().total_bytes = 19 * kMiB;
    EXPECT_EQ(arena.wake().error().code, ErrorCode::kResourceExhausted);
    fake_cuda().total_bytes = 20 * kMiB;
    ASSERT_TRUE(arena.wake());
    EXPECT_EQ(arena.mapped_bytes(), 20 * kMiB);
    first[0] = arena.data()[20 * kMiB - 1] = std::byte{9};
    EXPECT_EQ(arena.take(1), second + kMiB);

    CudaArena moved = std::move(arena);
    EXPECT_EQ(moved.data(), first);
    EXPECT_EQ(first[0], std::byte{9});
  }
  EXPECT_EQ(fake_cuda().used_bytes, 0U);
  EXPECT_EQ(fake_cuda().num_mappings, 0);
}

TEST(CudaArena, WhatCannotBeTakenChangesNothing) {
  const CudaTable table = make_fake_table();
  fake_cuda().total_bytes = 10 * kMiB;
  const CudaDevice device = CudaDevice::open(table, 0).value();
  CudaArena arena = CudaArena::reserve(device, 100 * kMiB).value();
  ASSERT_TRUE(arena.grow(4 * kMiB));
  const Status status = arena.grow(30 * kMiB);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().message,
            "CUDA device 0 (NVIDIA Fake) has too little memory by 20.0 MiB (arena 26.0 MiB: 26.0 MiB of 6.0 MiB free)");
  EXPECT_EQ(arena.mapped_bytes(), 4 * kMiB);
  EXPECT_DEATH(arena.take(5 * kMiB), "arena");
}

TEST(CudaStream, AStickyErrorIsUnavailableAndNamesWhatWasStarted) {
  const CudaTable table = make_fake_table();
  const CudaDevice device = CudaDevice::open(table, 0).value();
  CudaStream stream = CudaStream::create(device).value();
  EXPECT_TRUE(stream.synchronize());
  stream.note("rms_norm", {});
  fake_cuda().next_synchronize = kIllegalAddress;
  const Status status = stream.synchronize();
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::kUnavailable);
  EXPECT_THAT(
      status.error().message,
      AllOf(HasSubstr("CUDA device 0 (NVIDIA Fake), rms_norm started last: cudaStreamSynchronize failed with 700"),
            HasSubstr("cudaErrorIllegalAddress"), HasSubstr("context is lost"), HasSubstr("CUDA_LAUNCH_BLOCKING=1")));
  fake_cuda().next_synchronize = {};
  EXPECT_FALSE(stream.synchronize());  // it stays
}

TEST(CudaStream, KeepsTheFirstFailureOfAStep) {
  const CudaTable table = make_fake_table();
  const CudaDevice device = CudaDevice::open(table, 0).value();
  CudaStream stream = CudaStream::create(device).value();
  int from = 1;
  int to = 0;
  stream.copy(&to, &from, sizeof(from));
  EXPECT_EQ(to, 1);
  fake_cuda().next_copy = {CudaFailure::kOther, 1, "cudaMemcpyAsync", "cudaErrorInvalidValue", "invalid argument"};
  stream.copy(&to, &from, sizeof(from));
  fake_cuda().next_copy = kIllegalAddress;
  stream.copy(&to, &from, sizeof(from));
  ASSERT_FALSE(stream.status());
  EXPECT_EQ(stream.status().error().code, ErrorCode::kInternal);
  EXPECT_THAT(stream.status().error().message,
              HasSubstr("starting copy: cudaMemcpyAsync failed with 1 (cudaErrorInvalidValue: invalid argument)"));
}

TEST(CudaGraph, AFailureInsideIsTheCaptures) {
  const CudaTable table = make_fake_table();
  const CudaDevice device = CudaDevice::open(table, 0).value();
  {
    CudaStream stream = CudaStream::create(device).value();
    EXPECT_TRUE(CudaGraph::capture(stream, [] {}));
    const auto graph = CudaGraph::capture(stream, [&] { stream.note("attention", kIllegalAddress); });
    ASSERT_FALSE(graph);
    EXPECT_THAT(graph.error().message, HasSubstr("starting attention: "));
  }
  EXPECT_EQ(fake_cuda().num_handles, 0);
}

TEST(PinnedRing, GivesItsSlotsInTurnAndAllBack) {
  const CudaTable table = make_fake_table();
  const CudaDevice device = CudaDevice::open(table, 0).value();
  {
    CudaStream stream = CudaStream::create(device).value();
    PinnedRing ring = PinnedRing::create(device, 3, 100).value();
    std::byte* first = ring.acquire()->data();
    ring.release(stream);
    EXPECT_EQ(ring.acquire()->data(), first + 100);
    EXPECT_EQ(ring.acquire()->data(), first + 200);
    EXPECT_EQ(ring.acquire()->data(), first);
    fake_cuda().next_synchronize = kIllegalAddress;
    EXPECT_EQ(ring.acquire().error().code, ErrorCode::kUnavailable);
    EXPECT_GT(fake_cuda().num_handles, 0);
  }
  EXPECT_EQ(fake_cuda().num_handles, 0);
}

}  // namespace
}  // namespace thalweg::device
