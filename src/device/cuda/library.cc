#include "device/cuda/library.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <cstdlib>
#include <filesystem>
#include <string_view>
#include <system_error>

#include "device/cuda/status.h"

namespace thalweg::device {
namespace {

std::string default_library() {
  if (const char* chosen = std::getenv("THALWEG_CUDA_LIBRARY"); chosen != nullptr && *chosen != '\0') return chosen;
  std::error_code error;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", error);
  return (program.parent_path() / "libthalweg_cuda.so").string();
}

}  // namespace

Status check_cuda_border(const CudaTable& table, const std::string& library) {
  if (std::string_view(table.border) == THALWEG_CUDA_BORDER) return {};
  return fail(ErrorCode::kFailedPrecondition,
              fmt::format("{} is of another build (border {}, this program has {}); build both with `make cuda`",
                          library, table.border, THALWEG_CUDA_BORDER));
}

Status check_cuda_driver(const CudaTable& table) {
  std::int32_t version = 0;
  if (Status status = to_status(table.driver_version(&version), "CUDA"); !status) return status;
  if (version == 0) return fail(ErrorCode::kNotFound, "no NVIDIA driver is installed");
  if (version >= kMinCudaVersion) return {};
  return fail(ErrorCode::kFailedPrecondition,
              fmt::format("the NVIDIA driver serves CUDA {}.{}, {}.{} is needed; install driver 580 or newer",
                          version / 1000, version % 1000 / 10, kMinCudaVersion / 1000, kMinCudaVersion % 1000 / 10));
}

Result<const CudaTable*> load_cuda_library(const CudaFiles& files) {
  // The driver is only looked for: the library finds its functions itself.
  void* driver = dlopen(files.driver.c_str(), RTLD_LAZY | RTLD_LOCAL);
  if (driver == nullptr) {
    return fail(ErrorCode::kNotFound, fmt::format("no NVIDIA driver is installed ({} was not found)", files.driver));
  }
  const std::string library = files.library.empty() ? default_library() : files.library;
  void* loaded = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (loaded == nullptr) {
    const char* reason = dlerror();
    return fail(
        ErrorCode::kNotFound,
        fmt::format("{} cannot be loaded ({}); build it with `make cuda`, keep it beside the program or name it "
                    "in THALWEG_CUDA_LIBRARY",
                    library, reason == nullptr ? "no reason given" : reason));
  }
  auto* get_table = reinterpret_cast<decltype(&thalweg_cuda_table)>(dlsym(loaded, "thalweg_cuda_table"));
  if (get_table == nullptr) {
    return fail(ErrorCode::kFailedPrecondition, fmt::format("{} has no thalweg_cuda_table", library));
  }
  const CudaTable* table = get_table();
  if (Status status = check_cuda_border(*table, library); !status) return std::unexpected(status.error());
  if (Status status = check_cuda_driver(*table); !status) return std::unexpected(status.error());
  return table;
}

}  // namespace thalweg::device
