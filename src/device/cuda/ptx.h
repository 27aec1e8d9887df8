// Hopper's own instructions (sm_90a) as plain functions: barriers in shared memory, the bulk copy engine, matrix
// products of a warpgroup. Device code only; names and operands are those of the PTX ISA 9.0 manual.
//
// A tile that the copy engine writes and a matrix product reads has rows of 128 bytes (a "panel": 64 bf16 or 128 fp8),
// swizzled over groups of 8 rows. So every tile starts at a multiple of 1,024 bytes and has a multiple of 8 rows.
#pragma once

#include <cuda.h>

#include <cstdint>

namespace thalweg::device::ptx {

inline constexpr int kPanelBytes = 128;
inline constexpr int kInstructionBytes = 32;  // of K that one matrix product takes, at either element size
inline constexpr int kInstructionsPerPanel = kPanelBytes / kInstructionBytes;

using Barrier = std::uint64_t;

__device__ __forceinline__ std::uint32_t shared_address(const void* pointer) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(pointer));
}

// ---- barriers: a phase ends when `count` arrivals and all announced bytes have come --------------------------------

__device__ __forceinline__ void barrier_init(Barrier* barrier, int count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(count));
}

/// Makes initialised barriers visible to the copy engine and to the other blocks of the cluster.
__device__ __forceinline__ void fence_barrier_init() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

__device__ __forceinline__ void barrier_arrive_expect(Barrier* barrier, int num_bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)), "r"(num_bytes)
               : "memory");
}

__device__ __forceinline__ void barrier_arrive(Barrier* barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(barrier)) : "memory");
}

/// Arrives at the barrier at the same place in block `rank` of the cluster, releasing nothing to it but that this block
/// has ended its matrix products: `.release.cluster` would cost a fence of the whole device's memory.
__device__ __forceinline__ void barrier_arrive_at(Barrier* barrier, int rank) {
  asm volatile(
      "{\n"
      ".reg .b32 remote;\n"
      "mapa.shared::cluster.u32 remote, %0, %1;\n"
      "mbarrier.arrive.shared::cluster.b64 _, [remote];\n"
      "}\n" ::"r"(shared_address(barrier)),
      "r"(rank)
      : "memory");
}

__device__ __forceinline__ void barrier_wait(Barrier* barrier, int parity) {
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "again:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@!done bra again;\n"
      "}\n" ::"r"(shared_address(barrier)),
      "r"(parity)
      : "memory");
}

/// Of `num_threads` threads of the block that name the same `id` (1 to 15; 0 is __syncthreads).
__device__ __forceinline__ void named_barrier_sync(int id, int num_threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(num_threads) : "memory");
}

// ---- clusters and dependent launches --------------------------------------------------------------------------------

__device__ __forceinline__ int cluster_rank() {
  std::uint32_t rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return static_cast<int>(rank);
}

__device__ __forceinline__ void cluster_sync() {
  asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}

/// Waits until the kernels before this one have ended and their writes are seen. Free without a dependent launch.
__device__ __forceinline__ void wait_for_earlier_kernels() { asm volatile("griddepcontrol.wait;" ::: "memory"); }

/// Lets the next kernel start beside this one; it waits for us where it needs our results.
__device__ __forceinline__ void allow_next_kernel() { asm volatile("griddepcontrol.launch_dependents;"); }

// ---- the copy engine ------------------------------------------------------------------------------------------------

// createpolicy's values for reading once and for data that other blocks will read too.
inline constexpr std::uint64_t kEvictNormal = 0x1000000000000000;
inline constexpr std::uint64_t kEvictFirst = 0x12F0000000000000;
inline constexpr std::uint64_t kEvictLast = 0x14F0000000000000;

__device__ __forceinline__ void prefetch_tensor_map(const CUtensorMap* map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

/// Copies a box [panels, rows, 128 bytes] of a tensor [panel, row, 128 bytes]; outside of the tensor come zeros.
__device__ __forceinline__ void load_box(void* target, const CUtensorMap* map, int row, int panel, Barrier* barrier,
                                         std::uint64_t policy) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint"
      " [%0], [%1, {%2, %3, %4}], [%5], %6;" ::"r"(shared_address(target)),
      "l"(map), "r"(0), "r"(row), "r"(panel), "r"(shared_address(barrier)), "l"(policy)
      : "memory");
}

/// The same into every block of the cluster whose bit is set, at the same place, completing on the barrier there.
__device__ __forceinline__ void load_box_multicast(void* target, const CUtensorMap* map, int row, int panel,
                                                   Barrier* barrier, std::uint16_t blocks, std::uint64_t policy) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster.L2::cache_hint"
      " [%0], [%1, {%2, %3, %4}], [%5], %6, %7;" ::"r"(shared_address(target)),
      "l"(map), "r"(0), "r"(row), "r"(panel), "r"(shared_address(barrier)), "h"(blocks), "l"(policy)
      : "memory");
}

/// Copies `num_bytes` contiguous bytes; all three at multiples of 16.
__device__ __forceinline__ void load_bytes(void* target, const void* source, int num_bytes, Barrier* barrier,
                                           std::uint64_t policy) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], %2, [%3], %4;" ::
          "r"(shared_address(target)),
      "l"(source), "r"(num_bytes), "r"(shared_address(barrier)), "l"(policy)
      : "memory");
}

// ---- matrix products of a warpgroup ---------------------------------------------------------------------------------

template <int kRegisters>
__device__ __forceinline__ void raise_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

template <int kRegisters>
__device__ __forceinline__ void lower_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

/// Registers written before are seen by products issued after.
__device__ __forceinline__ void product_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void product_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }

/// Waits until at most `kPending` committed groups are unfinished.
template <int kPending>
__device__ __forceinline__ void product_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}

/// Keeps reads of `d` behind, and writes of it before, the waits and fences around it.
template <int kNum>
__device__ __forceinline__ void pin(float (&d)[kNum]) {
#pragma unroll
  for (int i = 0; i < kNum; ++i) asm volatile("" : "+f"(d[i])::"memory");
}

/// Describes a tile of swizzled 128-byte rows: its address, 1,024 bytes from 8 rows to the next 8, swizzle 128. The
/// next 32 bytes of K are `+ 2`, in units of 16 bytes.
__device__ __forceinline__ std::uint64_t tile_descriptor(const void* tile) {
  constexpr std::uint64_t kConstant =
      (std::uint64_t{1} << 62) | (std::uint64_t{1024 >> 4} << 32) | (std::uint64_t{1} << 16);
  return kConstant | ((shared_address(tile) & 0x3FFFF) >> 4);
}
inline constexpr int kDescriptorStep = kInstructionBytes >> 4;

enum class Operand : std::uint8_t { kBF16, kE4M3 };

// The operand lists of the instruction: N / 2 accumulators, then what differs.
#define THALWEG_F4(d, i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define THALWEG_F8(d, i) THALWEG_F4(d, i), THALWEG_F4(d, i + 4)
#define THALWEG_F16(d, i) THALWEG_F8(d, i), THALWEG_F8(d, i + 8)
#define THALWEG_F32(d, i) THALWEG_F16(d, i), THALWEG_F16(d, i + 16)
#define THALWEG_F64(d, i) THALWEG_F32(d, i), THALWEG_F32(d, i + 32)
#define THALWEG_F128(d, i) THALWEG_F64(d, i), THALWEG_F64(d, i + 64)

#define THALWEG_R4 "%0,%1,%2,%3"
#define THALWEG_R8 THALWEG_R4 ",%4,%5,%6,%7"
#define THALWEG_R16 THALWEG_R8 ",%8,%9,%10,%11,%12,%13,%14,%15"
#define THALWEG_R32 THALWEG_R16 ",%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31"
#define THALWEG_R64                                                                                       \
  THALWEG_R32                                                                                             \
  ",%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,%51,%52,%53,%54,%55,%56," \
  "%57,%58,%59,%60,%61,%62,%63"
#define THALWEG_R128                                                                                      \
  THALWEG_R64                                                                                             \
  ",%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79,%80,%81,%82,%83,%84,%85,%86,%87,%88," \
  "%89,%90,%91,%92,%93,%94,%95,%96,%97,%98,%99,%100,%101,%102,%103,%104,%105,%106,%107,%108,%109,%110,"   \
  "%111,%112,%113,%114,%115,%116,%117,%118,%119,%120,%121,%122,%123,%124,%125,%126,%127"

/// d[64, N] (+)= a[64, k] * b[N, k]^T, fp32. A thread's d: for column block j of 8, d[4j], d[4j + 1] are row lane / 4
/// of the warp's 16 and columns 8j + 2 (lane % 4) and the next, d[4j + 2], d[4j + 3] the same 8 rows below.
template <Operand kOperand, int kN>
struct Product;

#define THALWEG_PRODUCT(n, regs, floats, a, b, p)                                                               \
  template <>                                                                                                   \
  struct Product<Operand::kBF16, n> {                                                                           \
    __device__ static __forceinline__ void run(float* d, std::uint64_t da, std::uint64_t db, bool accumulate) { \
      asm volatile("{\n.reg .pred add;\nsetp.ne.b32 add, " p ", 0;\nwgmma.mma_async.sync.aligned.m64n" #n       \
                   "k16.f32.bf16.bf16 {" regs "}, " a ", " b ", add, 1, 1, 0, 0;\n}\n"                          \
                   : floats                                                                                     \
                   : "l"(da), "l"(db), "r"(static_cast<int>(accumulate)));                                      \
    }                                                                                                           \
  };                                                                                                            \
  template <>                                                                                                   \
  struct Product<Operand::kE4M3, n> {                                                                           \
    __device__ static __forceinline__ void run(float* d, std::uint64_t da, std::uint64_t db, bool accumulate) { \
      asm volatile("{\n.reg .pred add;\nsetp.ne.b32 add, " p ", 0;\nwgmma.mma_async.sync.aligned.m64n" #n       \
                   "k32.f32.e4m3.e4m3 {" regs "}, " a ", " b ", add, 1, 1;\n}\n"                                \
                   : floats                                                                                     \
                   : "l"(da), "l"(db), "r"(static_cast<int>(accumulate)));                                      \
    }                                                                                                           \
  };

THALWEG_PRODUCT(8, THALWEG_R4, THALWEG_F4(d, 0), "%4", "%5", "%6")
THALWEG_PRODUCT(16, THALWEG_R8, THALWEG_F8(d, 0), "%8", "%9", "%10")
THALWEG_PRODUCT(32, THALWEG_R16, THALWEG_F16(d, 0), "%16", "%17", "%18")
THALWEG_PRODUCT(64, THALWEG_R32, THALWEG_F32(d, 0), "%32", "%33", "%34")
THALWEG_PRODUCT(128, THALWEG_R64, THALWEG_F64(d, 0), "%64", "%65", "%66")
THALWEG_PRODUCT(256, THALWEG_R128, THALWEG_F128(d, 0), "%128", "%129", "%130")

/// The same in bf16 with a[64, 16] in registers: a[0], a[2] are row lane / 4 of the warp's 16, columns 2 (lane % 4) and
/// the next, and those 8 further; a[1], a[3] the same 8 rows below. They stay untouched until the product has ended.
template <int kN>
struct RegisterProduct;

#define THALWEG_REGISTER_PRODUCT(n, regs, floats, a, b, p)                                                             \
  template <>                                                                                                          \
  struct RegisterProduct<n> {                                                                                          \
    __device__ static __forceinline__ void run(float* d, const std::uint32_t* ra, std::uint64_t db, bool accumulate) { \
      asm volatile("{\n.reg .pred add;\nsetp.ne.b32 add, " p ", 0;\nwgmma.mma_async.sync.aligned.m64n" #n              \
                   "k16.f32.bf16.bf16 {" regs "}, {" a "}, " b ", add, 1, 1, 0;\n}\n"                                  \
                   : floats                                                                                            \
                   : "r"(ra[0]), "r"(ra[1]), "r"(ra[2]), "r"(ra[3]), "l"(db), "r"(static_cast<int>(accumulate)));      \
    }                                                                                                                  \
  };

THALWEG_REGISTER_PRODUCT(8, THALWEG_R4, THALWEG_F4(d, 0), "%4,%5,%6,%7", "%8", "%9")
THALWEG_REGISTER_PRODUCT(16, THALWEG_R8, THALWEG_F8(d, 0), "%8,%9,%10,%11", "%12", "%13")
THALWEG_REGISTER_PRODUCT(32, THALWEG_R16, THALWEG_F16(d, 0), "%16,%17,%18,%19", "%20", "%21")
THALWEG_REGISTER_PRODUCT(64, THALWEG_R32, THALWEG_F32(d, 0), "%32,%33,%34,%35", "%36", "%37")

}  // namespace thalweg::device::ptx
