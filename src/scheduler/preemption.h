// Who runs before whom, and who yields?
#pragma once

#include <span>

#include "scheduler/sequence.h"

namespace thalweg::scheduler {

/// Lower priority value first, then first come, then by index. A total order that no sequence ever
/// changes its place in: whoever is first is never preempted, so somebody always makes progress.
struct RunsBefore {
  using is_transparent = void;
  bool operator()(const Sequence* a, const Sequence* b) const;
};

/// Who gives up its blocks when there are none left: the last in the order. It may be the one that
/// asks. `running` is in order and not empty.
Sequence& choose_victim(std::span<Sequence* const> running);

/// Whether `waiting` may take the place of `running` instead of waiting for its end: only a strictly
/// better priority does, so that equals never push each other out in turn.
bool may_displace(const Sequence& waiting, const Sequence& running);

}  // namespace thalweg::scheduler
