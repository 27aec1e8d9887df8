#include "device/cuda/runtime.h"

namespace thalweg::device {
namespace {

CudaStatus capture_begin(CUstream_st* stream) {
  return status_of("cudaStreamBeginCapture", cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
}

CudaStatus capture_end(CUstream_st* stream, CUgraphExec_st** graph) {
  cudaGraph_t captured = nullptr;
  if (const cudaError_t code = cudaStreamEndCapture(stream, &captured); code != cudaSuccess) {
    return status_of("cudaStreamEndCapture", code);
  }
  const cudaError_t code = cudaGraphInstantiate(graph, captured, 0);
  cudaGraphDestroy(captured);
  return status_of("cudaGraphInstantiate", code);
}

CudaStatus graph_launch(CUgraphExec_st* graph, CUstream_st* stream) {
  return status_of("cudaGraphLaunch", cudaGraphLaunch(graph, stream));
}

CudaStatus graph_destroy(CUgraphExec_st* graph) {
  return status_of("cudaGraphExecDestroy", cudaGraphExecDestroy(graph));
}

}  // namespace

void fill_in_graphs(CudaTable& table) {
  table.capture_begin = capture_begin;
  table.capture_end = capture_end;
  table.graph_launch = graph_launch;
  table.graph_destroy = graph_destroy;
}

}  // namespace thalweg::device
