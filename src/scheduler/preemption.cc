#include "scheduler/preemption.h"

#include <tuple>

#include "base/check.h"

namespace thalweg::scheduler {

bool RunsBefore::operator()(const Sequence* a, const Sequence* b) const {
  return std::tuple(a->request->priority, a->request->id, a->index) <
         std::tuple(b->request->priority, b->request->id, b->index);
}

Sequence& choose_victim(std::span<Sequence* const> running) {
  CHECK(!running.empty());
  return *running.back();
}

bool may_displace(const Sequence& waiting, const Sequence& running) {
  return waiting.request->priority < running.request->priority;
}

}  // namespace thalweg::scheduler
