// Where kernels run. A kernel takes a Stream first and chooses its version from it.
#pragma once

#include <cstdint>

namespace thalweg::device {

class CudaStream;
class ThreadPool;

enum class DeviceKind : std::uint8_t { kCpu, kCuda };

/// Instruction sets a CPU kernel may use, widest last. A level includes those before it.
enum class CpuLevel : std::uint8_t {
  kReference,   // portable C++
  kAvx2,        // AVX2, FMA, F16C
  kAvx512,      // F, BW, VL, DQ
  kAvx512Vnni,  // and VNNI
};

/// The widest level this machine can run, lowered by THALWEG_CPU_LEVEL (reference, avx2, avx512, avx512_vnni) when it
/// is set.
CpuLevel detect_cpu_level();
const char* cpu_level_name(CpuLevel level);

/// In-order queue of kernels. On the CPU a launch returns when the kernel is done; on a GPU it returns at once, and
/// what failed is kept by the CudaStream.
struct Stream {
  DeviceKind kind = DeviceKind::kCpu;
  CpuLevel cpu_level = CpuLevel::kReference;
  ThreadPool* threads = nullptr;  // CPU only; not owned
  CudaStream* cuda = nullptr;     // kCuda only; not owned
};

}  // namespace thalweg::device
