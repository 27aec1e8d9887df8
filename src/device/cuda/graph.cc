#include "device/cuda/graph.h"

namespace thalweg::device {

Status CudaGraph::begin(CudaStream& stream) {
  if (!stream.status()) return stream.status();
  return stream.device().check(stream.table().capture_begin(stream.handle()));
}

Result<CudaGraph> CudaGraph::end(CudaStream& stream) {
  CUgraphExec_st* handle = nullptr;
  const CudaStatus ended = stream.table().capture_end(stream.handle(), &handle);
  Handle graph(handle, {&stream.table()});
  // An operation that could not be recorded is the cause of what ending says.
  if (!stream.status()) return std::unexpected(stream.status().error());
  if (Status status = stream.device().check(ended); !status) return std::unexpected(status.error());
  return CudaGraph(std::move(graph));
}

void CudaGraph::launch(CudaStream& stream) const {
  stream.note("graph", stream.table().graph_launch(handle_.get(), stream.handle()));
}

}  // namespace thalweg::device
