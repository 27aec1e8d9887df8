#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/utsname.h>

#include <thread>
#include <vector>

#include "apps/commands.h"
#include "apps/loaded_model.h"
#include "apps/version.h"
#include "device/cuda/device.h"
#include "device/cuda/library.h"
#include "device/stream.h"
#include "device/thread_pool.h"
#include "worker/memory_plan.h"

namespace thalweg::apps {
namespace {

void print_machine() {
  utsname system{};
  uname(&system);
  rlimit files{};
  getrlimit(RLIMIT_NOFILE, &files);
  fmt::print("thalweg          {}\n", version());
  fmt::print("system           {} {} {}\n", system.sysname, system.release, system.machine);
  fmt::print("processors       {} online, {} usable by this process\n", std::thread::hardware_concurrency(),
             device::num_usable_cpus());
  fmt::print("kernels          {} (THALWEG_CPU_LEVEL lowers it)\n", device::cpu_level_name(device::detect_cpu_level()));
  fmt::print("memory           {:.1f} GiB available\n",
             static_cast<double>(worker::available_memory_bytes()) / (1 << 30));
  fmt::print("open files       {} of at most {} (one per connection)\n", files.rlim_cur, files.rlim_max);
  fmt::print("cache folder     {}\n", cache_folder());
}

/// Asks no context of a device, so it is quick and takes no GPU memory.
void print_gpus() {
  const auto no_gpu = [](const Error& error) { fmt::print("GPUs             none used: {}\n", error.message); };
  const Result<const device::CudaTable*> table = device::load_cuda_library();
  if (!table) return no_gpu(table.error());
  const Result<std::vector<device::CudaDevice>> devices = device::open_cuda_devices(**table);
  if (!devices) return no_gpu(devices.error());
  for (const device::CudaDevice& gpu : *devices) {
    const device::CudaProperties& properties = gpu.properties();
    fmt::print("GPU {:<13}{}, {:.1f} GiB, {} multiprocessors, compute capability {}.{}\n", gpu.ordinal(),
               properties.name, static_cast<double>(properties.memory_bytes) / (1 << 30),
               properties.num_multiprocessors, properties.major, properties.minor);
  }
}

Status print_model(const std::string& model) {
  auto bare = load_bare_model(model, 0, {});
  if (!bare) return std::unexpected(bare.error());
  const models::ModelInfo& info = bare->model->info();
  auto plan = worker::plan_memory(info, {}, worker::available_memory_bytes());
  if (!plan) return std::unexpected(plan.error());
  fmt::print("model            {} with {} layers, context {}\n", info.architecture, info.num_layers, info.max_position);
  fmt::print("plan             {}\n", worker::describe(*plan, info.cache));
  return {};
}

}  // namespace

int run(const DoctorCommand& command) {
  print_machine();
  print_gpus();
  if (command.model.empty()) return 0;
  if (auto status = print_model(command.model); !status) return report(status.error());
  return 0;
}

}  // namespace thalweg::apps
