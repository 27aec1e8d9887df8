#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>

#include <atomic>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <thread>
#include <vector>

#include "device/arena.h"
#include "device/buffer.h"
#include "device/dtype.h"
#include "device/float_types.h"
#include "device/stream.h"
#include "device/thread_pool.h"

namespace thalweg::device {
namespace {

TEST(Buffer, IsZeroedAlignedAndMoves) {
  for (const std::size_t size : {std::size_t{1}, std::size_t{4097}, std::size_t{5} << 20}) {
    Buffer buffer(size);
    ASSERT_EQ(buffer.size(), size);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffer.data()) % 64, 0U);
    EXPECT_TRUE(std::all_of(buffer.data(), buffer.data() + size, [](std::byte b) { return b == std::byte{0}; }));
    buffer.data()[size - 1] = std::byte{7};
    Buffer moved = std::move(buffer);
    EXPECT_EQ(moved.data()[size - 1], std::byte{7});
    Buffer assigned(16);
    assigned = std::move(moved);
    EXPECT_EQ(assigned.size(), size);
    EXPECT_EQ(assigned.data()[size - 1], std::byte{7});
  }
  EXPECT_EQ(Buffer(0).data(), nullptr);
}

TEST(Arena, CutsDisjointBuffersThatOutliveIt) {
  std::vector<Buffer> buffers;
  {
    Arena arena;
    for (const std::size_t size :
         {std::size_t{1}, std::size_t{100}, std::size_t{15} << 20, std::size_t{17} << 20, std::size_t{15} << 20,
          std::size_t{15} << 20, std::size_t{15} << 20, std::size_t{15} << 20}) {
      buffers.push_back(arena.take(size));
      ASSERT_EQ(buffers.back().size(), size);
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffers.back().data()) % 64, 0U);
      EXPECT_EQ(buffers.back().data()[0], std::byte{0});
      EXPECT_EQ(buffers.back().data()[size - 1], std::byte{0});
    }
    EXPECT_EQ(arena.take(0).data(), nullptr);
  }
  for (std::size_t i = 0; i < buffers.size(); ++i) {
    const auto own = static_cast<std::byte>(i + 1);
    std::memset(buffers[i].data(), static_cast<int>(own), std::min(buffers[i].size(), std::size_t{4096}));
    buffers[i].data()[buffers[i].size() - 1] = own;
  }
  for (std::size_t i = 0; i < buffers.size(); ++i) {
    const auto own = static_cast<std::byte>(i + 1);
    EXPECT_EQ(buffers[i].data()[0], own);
    EXPECT_EQ(buffers[i].data()[buffers[i].size() - 1], own);
  }
  buffers[2] = std::move(buffers[0]);  // the old value goes, its neighbours stay
  EXPECT_EQ(buffers[2].data()[0], std::byte{1});
  EXPECT_EQ(buffers[1].data()[99], std::byte{2});
}

TEST(DType, RowBytes) {
  EXPECT_EQ(row_bytes(DType::kF32, 5), 20);
  EXPECT_EQ(row_bytes(DType::kQ4_1, 64), 40);
  EXPECT_EQ(row_bytes(DType::kQ6_K, 512), 420);
  EXPECT_EQ(row_bytes(DType::kF4E2M1, 64), 32);
  EXPECT_EQ(dtype_name(DType::kQ6_K), "Q6_K");
  EXPECT_EQ(dtype_name(DType::kF8E8M0), "F8_E8M0");
}

TEST(FloatTypes, HalfRoundTripsEveryCode) {
  for (std::uint32_t code = 0; code < 65536; ++code) {
    const float value = float_from_f16(static_cast<std::uint16_t>(code));
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(float_from_f16(f16_from_float(value)))) << code;
    } else {
      ASSERT_EQ(f16_from_float(value), code) << value;
    }
  }
}

TEST(FloatTypes, HalfRoundsToNearestEven) {
  EXPECT_EQ(float_from_f16(f16_from_float(2049.0F)), 2048.0F);
  EXPECT_EQ(float_from_f16(f16_from_float(2051.0F)), 2052.0F);
  EXPECT_EQ(float_from_f16(f16_from_float(65519.0F)), 65504.0F);
  EXPECT_TRUE(std::isinf(float_from_f16(f16_from_float(65520.0F))));
  EXPECT_EQ(f16_from_float(std::ldexp(1.0F, -25)), 0);  // half of the smallest, ties to even
  EXPECT_EQ(f16_from_float(std::ldexp(1.5F, -25)), 1);
  EXPECT_EQ(float_from_f16(f16_from_float(1e-30F)), 0.0F);
}

TEST(FloatTypes, Bfloat16) {
  EXPECT_EQ(float_from_bf16(0x3f80), 1.0F);
  EXPECT_EQ(bf16_from_float(1.0F), 0x3f80);
  EXPECT_EQ(bf16_from_float(1.0F + std::ldexp(1.0F, -8)), 0x3f80);      // tie, even
  EXPECT_EQ(bf16_from_float(1.0F + 3 * std::ldexp(1.0F, -8)), 0x3f82);  // tie, even
  EXPECT_EQ(bf16_from_float(1.0F + 1.01F * std::ldexp(1.0F, -8)), 0x3f81);
  EXPECT_TRUE(std::isnan(float_from_bf16(bf16_from_float(std::numeric_limits<float>::quiet_NaN()))));
  EXPECT_TRUE(std::isinf(float_from_bf16(bf16_from_float(std::numeric_limits<float>::infinity()))));
}

TEST(FloatTypes, EveryFp8Code) {
  for (int code = 0; code < 256; ++code) {
    const int exponent = (code >> 3) & 15;
    const int mantissa = code & 7;
    const double sign = code >= 128 ? -1.0 : 1.0;
    const float value = float_from_f8_e4m3(static_cast<std::uint8_t>(code));
    if (exponent == 15 && mantissa == 7) {
      EXPECT_TRUE(std::isnan(value)) << code;
    } else if (exponent == 0) {
      EXPECT_EQ(value, sign * std::ldexp(mantissa, -9)) << code;
    } else {
      EXPECT_EQ(value, sign * std::ldexp(8 + mantissa, exponent - 10)) << code;
    }
  }
}

TEST(FloatTypes, NarrowCodesRoundTrip) {
  for (int i = 0; i < 256; ++i) {
    const auto code = static_cast<std::uint8_t>(i);
    EXPECT_EQ(f8_e4m3_from_float(float_from_f8_e4m3(code)), code);
    EXPECT_EQ(f4_e2m1_from_float(float_from_f4_e2m1(code & 15)), code & 15);
    if (i == 255) {
      EXPECT_TRUE(std::isnan(float_from_f8_e8m0(code)));
    } else {
      EXPECT_EQ(float_from_f8_e8m0(code), std::ldexp(1.0F, i - 127));
    }
  }
  const float grid[] = {0.0F, 0.5F, 1.0F, 1.5F, 2.0F, 3.0F, 4.0F, 6.0F};
  for (std::uint8_t code = 0; code < 8; ++code) {
    EXPECT_EQ(float_from_f4_e2m1(code), grid[code]);
    EXPECT_EQ(std::bit_cast<std::uint32_t>(float_from_f4_e2m1(code | 8)),
              std::bit_cast<std::uint32_t>(-grid[code]));  // -0 too
  }
}

TEST(FloatTypes, NarrowCodesRoundToEvenAndSaturate) {
  const float infinity = std::numeric_limits<float>::infinity();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  // Between any two neighbours: the middle goes to the even code, a hair off it to the nearer one.
  for (std::uint8_t code = 0; code < 0x7e; ++code) {
    const float middle = (float_from_f8_e4m3(code) + float_from_f8_e4m3(code + 1)) / 2;
    EXPECT_EQ(f8_e4m3_from_float(middle), code + code % 2);
    EXPECT_EQ(f8_e4m3_from_float(std::nextafter(middle, 0.0F)), code);
    EXPECT_EQ(f8_e4m3_from_float(-std::nextafter(middle, infinity)), 0x80 | (code + 1));
  }
  for (std::uint8_t code = 0; code < 7; ++code) {
    const float middle = (float_from_f4_e2m1(code) + float_from_f4_e2m1(code + 1)) / 2;
    EXPECT_EQ(f4_e2m1_from_float(middle), code + code % 2);
    EXPECT_EQ(f4_e2m1_from_float(std::nextafter(middle, 0.0F)), code);
    EXPECT_EQ(f4_e2m1_from_float(-std::nextafter(middle, infinity)), 8 | (code + 1));
  }
  for (const float large : {449.0F, 464.0F, 1e30F, infinity}) {
    EXPECT_EQ(f8_e4m3_from_float(large), 0x7e);
    EXPECT_EQ(f8_e4m3_from_float(-large), 0xfe);
    EXPECT_EQ(f4_e2m1_from_float(-large), 15);
  }
  EXPECT_EQ(f8_e4m3_from_float(nan) & 0x7f, 0x7f);
  EXPECT_EQ(f4_e2m1_from_float(nan) & 7, 7);
}

TEST(FloatTypes, E8m0RoundsUp) {
  for (int exponent = -126; exponent < 127; ++exponent) {
    const float power = std::ldexp(1.0F, exponent);
    EXPECT_EQ(f8_e8m0_ceil(power), exponent + 127);
    EXPECT_EQ(f8_e8m0_ceil(std::nextafter(power, 2 * power)), exponent + 128);
  }
  EXPECT_EQ(f8_e8m0_ceil(std::numeric_limits<float>::max()), 255);
  EXPECT_EQ(f8_e8m0_ceil(std::numeric_limits<float>::infinity()), 255);
  EXPECT_EQ(f8_e8m0_ceil(std::numeric_limits<float>::quiet_NaN()), 255);
}

TEST(CpuLevel, EnvironmentLowersButNeverRaises) {
  unsetenv("THALWEG_CPU_LEVEL");
  const CpuLevel widest = detect_cpu_level();
  setenv("THALWEG_CPU_LEVEL", "reference", 1);
  EXPECT_EQ(detect_cpu_level(), CpuLevel::kReference);
  setenv("THALWEG_CPU_LEVEL", "avx512_vnni", 1);
  EXPECT_EQ(detect_cpu_level(), widest);
  setenv("THALWEG_CPU_LEVEL", "sse9", 1);
  EXPECT_EQ(detect_cpu_level(), widest);
  unsetenv("THALWEG_CPU_LEVEL");
  EXPECT_STREQ(cpu_level_name(CpuLevel::kAvx512Vnni), "avx512_vnni");
}

TEST(UsableCpus, FollowsTheAffinityMask) {
  EXPECT_GE(num_usable_cpus(), 1);
  std::thread([] {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(sched_getcpu(), &one);
    ASSERT_EQ(sched_setaffinity(0, sizeof(one), &one), 0);
    EXPECT_EQ(num_usable_cpus(), 1);
  }).join();
}

TEST(ThreadPool, EveryTaskRunsOnceAndBeforeTheReturn) {
  for (const int num_threads : {1, 2, 5}) {
    ThreadPool pool(num_threads);
    EXPECT_EQ(pool.num_threads(), num_threads);
    for (const std::int64_t num_tasks : {0, 1, 2, 3, 17, 1000}) {
      std::vector<int> runs(static_cast<std::size_t>(num_tasks), 0);  // plain: the return must order the writes
      pool.parallel_for(num_tasks, [&](std::int64_t task, int thread) {
        EXPECT_GE(thread, 0);
        EXPECT_LT(thread, num_threads);
        ++runs[static_cast<std::size_t>(task)];
      });
      EXPECT_THAT(runs, ::testing::Each(1));
    }
  }
}

TEST(ThreadPool, ManyShortJobsOfChangingSizeStayApart) {
  ThreadPool pool(3, /*pin=*/false);
  std::vector<std::int64_t> seen(64);
  for (std::int64_t job = 0; job < 20000; ++job) {
    const std::int64_t num_tasks = 1 + job % 64;
    pool.parallel_for(num_tasks, [&](std::int64_t task, int) { seen[static_cast<std::size_t>(task)] = job; });
    for (std::int64_t task = 0; task < num_tasks; ++task) ASSERT_EQ(seen[static_cast<std::size_t>(task)], job);
  }
}

TEST(ThreadPool, WakesSleepingWorkers) {
  ThreadPool pool(2, /*pin=*/false);
  for (int i = 0; i < 20; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));  // far beyond the workers' spinning
    std::atomic<int> arrived{0};
    // Each task waits for the other: one thread alone could not finish.
    pool.parallel_for(2, [&](std::int64_t, int) {
      arrived.fetch_add(1);
      while (arrived.load() < 2) std::this_thread::yield();
    });
  }
}

TEST(ThreadPool, IdleWorkersUseNoProcessorTime) {
  ThreadPool pool(3);
  pool.parallel_for(8, [](std::int64_t, int) {});
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  const std::clock_t before = std::clock();
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  EXPECT_LT(static_cast<double>(std::clock() - before) / CLOCKS_PER_SEC, 0.05);
}

TEST(ThreadPool, CallerWaitsForASlowWorker) {
  ThreadPool pool(2, /*pin=*/false);
  std::atomic<bool> slow_done{false};
  std::atomic<int> arrived{0};
  pool.parallel_for(2, [&](std::int64_t, int thread) {
    arrived.fetch_add(1);
    while (arrived.load() < 2) std::this_thread::yield();
    if (thread == 0) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    slow_done.store(true);
  });
  EXPECT_TRUE(slow_done.load());
}

int num_allowed_processors() {
  cpu_set_t set;
  CPU_ZERO(&set);
  return sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : 0;
}

TEST(ThreadPool, BoundWorkersAreReleasedWhenTheyKeepGettingLost) {
  const int num_processors = num_allowed_processors();
  if (num_processors < 2) GTEST_SKIP() << "needs two processors";
  ThreadPool pool(2);
  int worker_processors = 0;
  const auto both_take_part = [&](std::chrono::milliseconds worker_time) {
    std::atomic<int> arrived{0};
    pool.parallel_for(2, [&](std::int64_t, int thread) {
      arrived.fetch_add(1);
      while (arrived.load() < 2) std::this_thread::yield();
      if (thread == 0) return;
      worker_processors = num_allowed_processors();
      std::this_thread::sleep_for(worker_time);
    });
  };
  both_take_part(std::chrono::milliseconds(0));
  EXPECT_EQ(worker_processors, 1);
  // Three losses are enough; on a busy machine the caller may come too late to notice some.
  for (int i = 0; i < 100 && worker_processors == 1; ++i) both_take_part(std::chrono::milliseconds(20));
  EXPECT_EQ(worker_processors, num_processors);
}

TEST(ThreadPool, ScratchIsKeptAndSlotsAreApart) {
  ThreadPool pool(2);
  std::byte* linear = pool.scratch(ScratchSlot::kLinear, 1000);
  std::byte* moe = pool.scratch(ScratchSlot::kMoe, 1000);
  EXPECT_NE(linear, moe);
  EXPECT_EQ(pool.scratch(ScratchSlot::kLinear, 500), linear);
  std::byte* grown = pool.scratch(ScratchSlot::kLinear, 1 << 20);
  std::memset(grown, 1, 1 << 20);
  EXPECT_EQ(pool.scratch(ScratchSlot::kLinear, 1 << 20), grown);
}

}  // namespace
}  // namespace thalweg::device
