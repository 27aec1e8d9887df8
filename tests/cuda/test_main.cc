#include <fmt/format.h>
#include <gtest/gtest.h>

#include "device/cuda/test_device.h"

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  // A fault ends the process's context, so such tests run in a child; it must not inherit ours by fork.
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  if (const auto device = thalweg::device::find_test_device(); !device) {
    fmt::print("SKIPPED: {}\n", device.error().message);
    return 0;
  }
  return RUN_ALL_TESTS();
}
