#include <sched.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>

#include "device/thread_pool.h"

namespace thalweg::device {
namespace {

// Processors granted by a quota, 0 when there is none.
double granted_cpus(double quota_us, double period_us) {
  return quota_us > 0 && period_us > 0 ? quota_us / period_us : 0.0;
}

// Second version of cgroups: "cpu.max" holds "<quota or max> <period>".
double read_cpu_max(const std::string& folder) {
  std::ifstream file(folder + "/cpu.max");
  std::string quota;
  double period = 0;
  if (!(file >> quota >> period) || quota == "max") return 0.0;
  return granted_cpus(std::strtod(quota.c_str(), nullptr), period);
}

// First version: two files; a quota of -1 is none.
double read_cfs_quota(const std::string& folder) {
  std::ifstream quota_file(folder + "/cpu.cfs_quota_us");
  std::ifstream period_file(folder + "/cpu.cfs_period_us");
  double quota = 0;
  double period = 0;
  if (!(quota_file >> quota) || !(period_file >> period)) return 0.0;
  return granted_cpus(quota, period);
}

// The tightest quota from the process's own group up to the root. Inside a container the group's path may belong to
// the host's tree; then only the root of the mounted tree is found, which is the container's group.
double cgroup_cpus() {
  double tightest = 0.0;
  const auto take = [&tightest](double cpus) {
    if (cpus > 0 && (tightest == 0.0 || cpus < tightest)) tightest = cpus;
  };
  std::ifstream groups("/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    const std::size_t first = line.find(':');
    const std::size_t second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const bool unified = controllers.empty();
    if (!unified && controllers.find("cpu") == std::string::npos) continue;
    for (std::string path = line.substr(second + 1);;) {
      if (path == "/") path.clear();
      take(unified ? read_cpu_max("/sys/fs/cgroup" + path) : read_cfs_quota("/sys/fs/cgroup/cpu" + path));
      if (path.empty()) break;
      path.resize(path.find_last_of('/'));
    }
  }
  return tightest;
}

}  // namespace

int num_usable_cpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  int allowed = sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set)
                                                             : static_cast<int>(std::thread::hardware_concurrency());
  const double granted = cgroup_cpus();
  if (granted > 0) allowed = std::min(allowed, static_cast<int>(std::ceil(granted)));
  return std::max(allowed, 1);
}

}  // namespace thalweg::device
