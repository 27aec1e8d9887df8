#include <array>
#include <cstdlib>
#include <string_view>

#include "base/log.h"
#include "device/stream.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace thalweg::device {
namespace {

constexpr std::array<const char*, 4> kNames{"reference", "avx2", "avx512", "avx512_vnni"};

#if defined(__x86_64__)
constexpr bool bit(unsigned word, int index) { return ((word >> index) & 1U) != 0; }

// Asked of the processor itself: __builtin_cpu_supports of clang 16 does not know the name.
bool has_f16c() {
  unsigned a = 0;
  unsigned b = 0;
  unsigned c = 0;
  unsigned d = 0;
  return __get_cpuid(1, &a, &b, &c, &d) != 0 && bit(c, 29);
}

CpuLevel widest_level() {
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c();
  if (!avx2) return CpuLevel::kReference;
  const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
  if (!avx512) return CpuLevel::kAvx2;
  return __builtin_cpu_supports("avx512vnni") ? CpuLevel::kAvx512Vnni : CpuLevel::kAvx512;
}
#else
CpuLevel widest_level() { return CpuLevel::kReference; }
#endif

}  // namespace

CpuLevel detect_cpu_level() {
  const CpuLevel widest = widest_level();
  const char* wanted = std::getenv("THALWEG_CPU_LEVEL");
  if (wanted == nullptr || *wanted == '\0') return widest;
  for (std::size_t i = 0; i < kNames.size(); ++i) {
    if (std::string_view(wanted) != kNames.at(i)) continue;
    const auto level = static_cast<CpuLevel>(i);
    if (level <= widest) return level;
    log(LogLevel::kWarning, "THALWEG_CPU_LEVEL={} is more than this machine can run; using {}", wanted,
        cpu_level_name(widest));
    return widest;
  }
  log(LogLevel::kWarning, "THALWEG_CPU_LEVEL={} is not one of reference, avx2, avx512, avx512_vnni; using {}", wanted,
      cpu_level_name(widest));
  return widest;
}

const char* cpu_level_name(CpuLevel level) { return kNames.at(static_cast<std::size_t>(level)); }

}  // namespace thalweg::device
