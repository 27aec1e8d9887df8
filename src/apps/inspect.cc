#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <string>

#include "apps/commands.h"
#include "apps/deepseek_v41_report.h"
#include "apps/loaded_model.h"
#include "device/dtype.h"
#include "models/deepseek_v41/released.h"
#include "weights/checkpoint.h"

namespace thalweg::apps {
namespace {

struct Share {
  std::int64_t num_tensors = 0;
  std::int64_t num_elements = 0;
  std::uint64_t num_bytes = 0;

  void add(const weights::TensorInfo& tensor) {
    ++num_tensors;
    num_elements += tensor.num_elements();
    num_bytes += tensor.num_bytes;
  }
};

void print_share(std::string_view name, const Share& share) {
  fmt::print("  {:<10} {:>6} tensors {:>16} elements {:>12.1f} MiB\n", name, share.num_tensors, share.num_elements,
             static_cast<double>(share.num_bytes) / (1 << 20));
}

void print_summary(const weights::Checkpoint& checkpoint) {
  std::map<device::DType, Share> shares;
  Share all;
  for (const weights::TensorInfo& tensor : checkpoint.tensors()) {
    shares[tensor.dtype].add(tensor);
    all.add(tensor);
  }
  fmt::print("architecture {}\n", checkpoint.architecture());
  for (const std::string& file : checkpoint.files()) fmt::print("file {}\n", file);
  for (const auto& [dtype, share] : shares) print_share(device::dtype_name(dtype), share);
  print_share("all", all);
}

void print_metadata(const weights::Checkpoint& checkpoint) {
  for (const auto& [key, value] : checkpoint.metadata().describe()) fmt::print("{} = {}\n", key, value);
}

void print_tensors(const weights::Checkpoint& checkpoint) {
  for (const weights::TensorInfo& tensor : checkpoint.tensors()) {
    std::string shape;
    for (const std::int64_t size : tensor.shape) shape += fmt::format("{}{}", shape.empty() ? "" : ", ", size);
    fmt::print("{:<60} {:<8} [{}]  {} bytes\n", tensor.name, device::dtype_name(tensor.dtype), shape, tensor.num_bytes);
  }
}

bool is_deepseek_v41(const weights::Checkpoint& checkpoint) {
  return checkpoint.architecture() == "DeepseekV41ForCausalLM" || checkpoint.architecture() == "deepseek_v41";
}

Status print_parts(const weights::Checkpoint& checkpoint) {
  const auto config = models::deepseek_v41::read_config(checkpoint);
  if (!config) return std::unexpected(config.error());
  print_deepseek_v41(*config, models::deepseek_v41::footprint(*config, checkpoint));
  return {};
}

/// A released model without its files.
int print_preset() {
  const models::deepseek_v41::Config config = models::deepseek_v41::released_config();
  auto parameters = models::deepseek_v41::inventory(config);
  auto vision = models::deepseek_v41::inventory(models::deepseek_v41::released_vision_tower(), config.hidden_size);
  std::ranges::move(vision, std::back_inserter(parameters));
  print_deepseek_v41(config, models::deepseek_v41::footprint(parameters));
  return 0;
}

}  // namespace

int run(const InspectCommand& command) {
  if (!command.preset.empty()) return print_preset();
  if (command.model.empty()) {
    return report({ErrorCode::kInvalidArgument, "inspect needs a model, or --preset for one without files", "model"});
  }
  auto path = resolve_model(command.model);
  if (!path) return report(path.error());
  auto checkpoint = weights::Checkpoint::open(*path);
  if (!checkpoint) return report(checkpoint.error());
  print_summary(**checkpoint);
  if (is_deepseek_v41(**checkpoint)) {
    if (auto status = print_parts(**checkpoint); !status) return report(status.error());
  }
  if (command.metadata) print_metadata(**checkpoint);
  if (command.tensors) print_tensors(**checkpoint);
  return 0;
}

}  // namespace thalweg::apps
