// Chooses the kernel of a product, cuts it and describes its operands to the copy engine.
#include "kernels/linear/sm90.h"

#include <algorithm>

#include "kernels/linear/sm90_launch.h"

namespace thalweg::kernels {
namespace {

using device::CudaStatus;

constexpr std::int64_t kMaxStreamTokens = 64;
// Half of a multiprocessor's shared memory less the kernel's other needs, see sm90_stream.h.
constexpr std::int64_t kRingBytes = 100 << 10;
constexpr std::int64_t kMaxSharedBytes = 227 << 10;

std::int64_t divide_up(std::int64_t value, std::int64_t divisor) { return (value + divisor - 1) / divisor; }
std::int64_t round_up(std::int64_t value, std::int64_t multiple) { return divide_up(value, multiple) * multiple; }

std::int64_t element_bytes(LinearSm90Weights weights) {
  return weights == LinearSm90Weights::kBF16 || weights == LinearSm90Weights::kQ4 ? 2 : 1;
}

// A matrix [num_rows, row_bytes] as panels of 128 bytes: [panel, row, 128], of which a box is read at once.
CudaStatus describe(CUtensorMap* map, const void* data, std::int64_t num_rows, std::int64_t row_bytes,
                    std::int64_t num_panels, std::int64_t box_rows, std::int64_t box_panels) {
  decltype(&cuTensorMapEncodeTiled) encode = nullptr;
  const CudaStatus status = device::find_driver_function("cuTensorMapEncodeTiled", &encode);
  if (status.failure != device::CudaFailure::kNone) return status;
  constexpr auto kPanelBytes = static_cast<std::int64_t>(device::ptx::kPanelBytes);
  const cuuint64_t sizes[3] = {static_cast<cuuint64_t>(kPanelBytes), static_cast<cuuint64_t>(num_rows),
                               static_cast<cuuint64_t>(num_panels)};
  const cuuint64_t strides[2] = {static_cast<cuuint64_t>(row_bytes), static_cast<cuuint64_t>(kPanelBytes)};
  const cuuint32_t box[3] = {static_cast<cuuint32_t>(kPanelBytes), static_cast<cuuint32_t>(box_rows),
                             static_cast<cuuint32_t>(box_panels)};
  const cuuint32_t element_strides[3] = {1, 1, 1};
  const CUresult code =
      encode(map, CU_TENSOR_MAP_DATA_TYPE_UINT8, 3, const_cast<void*>(data), sizes, strides, box, element_strides,
             CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
             CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  return device::status_of("cuTensorMapEncodeTiled", code);
}

sm90::Output output_of(const LinearSm90Params& params) {
  return {params.out,
          params.out_stride,
          static_cast<std::int32_t>(params.num_tokens),
          static_cast<std::int32_t>(params.num_rows),
          params.out_is_f32,
          params.epilogue};
}

std::int32_t tile_columns_of(LinearSm90Kernel kernel) {
  return kernel == LinearSm90Kernel::kTile256 ? 256 : kernel == LinearSm90Kernel::kTile128 ? 128 : 64;
}

// Few tokens stream W. For more, tiles of few rows of W where larger ones would leave multiprocessors without work.
LinearSm90Kernel choose_kernel(const LinearSm90Params& params) {
  if (params.num_tokens <= kMaxStreamTokens) return LinearSm90Kernel::kStream;
  LinearSm90Kernel best = LinearSm90Kernel::kTile256;
  std::int64_t best_cost = INT64_MAX;
  for (const auto kernel : {LinearSm90Kernel::kTile256, LinearSm90Kernel::kTile128, LinearSm90Kernel::kTile64}) {
    const std::int32_t columns = tile_columns_of(kernel);
    const std::int64_t token_tiles =
        round_up(divide_up(params.num_tokens, sm90::kTileTokens), sm90::cluster_of(columns));
    const std::int64_t tiles = token_tiles * divide_up(params.num_rows, columns);
    // A tile takes time by its columns, and some for its tokens, which all tiles of a row of tiles read anew.
    const std::int64_t cost = divide_up(tiles, params.num_multiprocessors) * (columns + 48);
    if (cost < best_cost) {
      best_cost = cost;
      best = kernel;
    }
  }
  return best;
}

CudaStatus gemm(CUstream_st* stream, const LinearSm90Params& params, std::int32_t tile_columns) {
  sm90::GemmLaunch gemm = {};
  gemm.tile_columns = tile_columns;
  const std::int32_t cluster = sm90::cluster_of(tile_columns);
  gemm.stream = stream;
  gemm.num_multiprocessors = params.num_multiprocessors;
  gemm.starts_early = params.starts_early;
  const std::int64_t bytes = element_bytes(params.weights);
  const std::int64_t num_panels = params.num_cols * bytes / device::ptx::kPanelBytes;
  gemm.args.output = output_of(params);
  gemm.args.num_panels = static_cast<std::int32_t>(num_panels);
  gemm.args.num_token_tiles =
      static_cast<std::int32_t>(divide_up(params.num_tokens, sm90::kTileTokens * cluster));
  gemm.args.num_column_tiles = static_cast<std::int32_t>(divide_up(params.num_rows, tile_columns));
  gemm.args.x_scale = params.x_scale;
  gemm.args.x_scale_stride = params.x_scale_stride;
  gemm.args.weight_scale = params.weight_scale;

  const void* weight = params.weight;
  if (params.weights == LinearSm90Weights::kQ4) {
    const CudaStatus status = sm90::expand_q4(stream, static_cast<const Q4UnitSm90*>(params.weight), params.num_rows,
                                              num_panels, params.scratch);
    if (status.failure != device::CudaFailure::kNone) return status;
    weight = params.scratch;
  }
  CudaStatus status = describe(&gemm.x, params.x, params.num_tokens, params.x_stride * bytes, num_panels,
                               sm90::kTileTokens, 1);
  if (status.failure != device::CudaFailure::kNone) return status;
  status = describe(&gemm.weight, weight, params.num_rows, params.num_cols * bytes, num_panels,
                    tile_columns / cluster, 1);
  if (status.failure != device::CudaFailure::kNone) return status;
  switch (params.weights) {
    case LinearSm90Weights::kFp8:
      return sm90::gemm_fp8(gemm);
    case LinearSm90Weights::kFp8Blocks:
      return sm90::gemm_fp8_blocks(gemm);
    default:
      return sm90::gemm_bf16(gemm);
  }
}

// Rows of W a block takes at once: all blocks alike, so that they end together.
std::int64_t choose_stream_rows(std::int64_t num_rows, std::int64_t num_multiprocessors) {
  constexpr std::int64_t kMaxRows = 2 * sm90::kWarpgroupRows;
  const std::int64_t rounds = divide_up(num_rows, num_multiprocessors * kMaxRows);
  return round_up(divide_up(num_rows, num_multiprocessors * rounds), 8);
}

CudaStatus stream_weights(CUstream_st* stream, const LinearSm90Params& params) {
  const std::int64_t bytes = element_bytes(params.weights);
  const std::int64_t num_panels = params.num_cols * bytes / device::ptx::kPanelBytes;
  const std::int64_t rows = choose_stream_rows(params.num_rows, params.num_multiprocessors);
  const bool is_q4 = params.weights == LinearSm90Weights::kQ4;
  sm90::StreamLaunch launch = {};
  launch.tokens = 8;
  while (launch.tokens < params.num_tokens) launch.tokens *= 2;
  launch.is_wide = rows > sm90::kWarpgroupRows;

  const std::int64_t panels = sm90::stream_panels(is_q4, launch.tokens, launch.is_wide);
  const std::int64_t weight_panel_bytes =
      is_q4 ? rows / 8 * static_cast<std::int64_t>(sizeof(Q4UnitSm90)) : rows * device::ptx::kPanelBytes;
  sm90::StreamArgs& args = launch.args;
  args.output = output_of(params);
  args.num_panels = static_cast<std::int32_t>(num_panels);
  args.rows_per_tile = static_cast<std::int32_t>(rows);
  args.num_tiles = static_cast<std::int32_t>(divide_up(params.num_rows, rows));
  args.stage_bytes = static_cast<std::int32_t>(
      round_up(panels * (launch.tokens * device::ptx::kPanelBytes + weight_panel_bytes), 1024));
  args.units = static_cast<const Q4UnitSm90*>(params.weight);
  args.x_scale = params.x_scale;
  args.x_scale_stride = params.x_scale_stride;
  args.weight_scale = params.weight_scale;

  const bool has_blocks = params.weights == LinearSm90Weights::kFp8Blocks;
  const std::int64_t stage_scale_bytes =
      has_blocks ? panels * launch.tokens * static_cast<std::int64_t>(sizeof(float)) : 0;
  const std::int64_t row_scale_bytes = has_blocks ? 2 * num_panels * static_cast<std::int64_t>(sizeof(float)) : 0;
  const std::int64_t other_bytes = sm90::kStreamOverread + sm90::kStreamBarrierBytes + row_scale_bytes;
  const std::int64_t stage_bytes = args.stage_bytes + stage_scale_bytes;
  const std::int64_t wanted_bytes = params.ring_bytes == 0 ? kRingBytes : params.ring_bytes;
  const std::int64_t ring_bytes =
      std::min<std::int64_t>(std::max(wanted_bytes, 3 * stage_bytes), kMaxSharedBytes - other_bytes);
  args.num_stages = static_cast<std::int32_t>(std::min<std::int64_t>(ring_bytes / stage_bytes, sm90::kMaxStreamStages));

  launch.how.stream = stream;
  launch.how.num_blocks = std::min(args.num_tiles, params.num_multiprocessors);
  launch.how.num_threads = (launch.is_wide ? 256 : 128) + 32;
  launch.how.shared_bytes = static_cast<std::int32_t>(args.num_stages * stage_bytes + other_bytes);
  launch.how.cluster = 1;
  launch.how.starts_early = params.starts_early;

  CudaStatus status = describe(&launch.x, params.x, params.num_tokens, params.x_stride * bytes, num_panels,
                               launch.tokens, panels);
  if (status.failure != device::CudaFailure::kNone) return status;
  if (!is_q4) {
    status =
        describe(&launch.weight, params.weight, params.num_rows, params.num_cols * bytes, num_panels, rows, panels);
    if (status.failure != device::CudaFailure::kNone) return status;
  }
  switch (params.weights) {
    case LinearSm90Weights::kFp8:
      return sm90::stream_fp8(launch);
    case LinearSm90Weights::kFp8Blocks:
      return sm90::stream_fp8_blocks(launch);
    case LinearSm90Weights::kQ4:
      return sm90::stream_q4(launch);
    default:
      return sm90::stream_bf16(launch);
  }
}

}  // namespace

CudaStatus linear_sm90(CUstream_st* stream, const LinearSm90Params& params) {
  if (params.num_tokens == 0) return {};
  const LinearSm90Kernel kernel =
      params.kernel == LinearSm90Kernel::kChosen ? choose_kernel(params) : params.kernel;
  if (kernel == LinearSm90Kernel::kStream) return stream_weights(stream, params);
  return gemm(stream, params, tile_columns_of(kernel));
}

}  // namespace thalweg::kernels
