// The language of the kernels: CUDA C++, narrowed to what both nvcc and the tests' emulator know,
// so that tests run every kernel, thread by thread, without a GPU. This header holds nvcc's
// definitions. Targets that compile kernels for the host define TANDEM_KERNEL_LANGUAGE as the
// header that holds the others (tests/emulator/CMakeLists.txt); nothing outside tests/ names that
// header.
//
// Rules of a kernel file (.cu), which alone includes this header, itself or through other headers:
// - Includes this header and headers of constants and index arithmetic; no CUDA, LibTorch, absl.
// - Blocks are whole warps, and every thread of a warp reaches every warp function (Shuffle...,
//   Mma..., LdMatrix...), with the same instruction.
// - `__global__`, `__device__`, `threadIdx`, `blockIdx`, `blockDim`, `gridDim`, `__syncthreads`,
//   TANDEM_SHARED for shared memory of fixed size, SharedMemory() for the rest, AtomicAdd.
// - Bits matter: sums of floats have a fixed order, never an atomic; nvcc is told not to contract
//   products and sums (-fmad=false): where a fused one is meant, fmaf says so.
// - Launch() is the only way to start one.
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/device/cuda/launch.h"

#ifdef __CUDACC__
#include <cuda_runtime.h>
#elif defined(TANDEM_KERNEL_LANGUAGE)
#include TANDEM_KERNEL_LANGUAGE
#else
#error "kernels are compiled by nvcc, or by a target that defines TANDEM_KERNEL_LANGUAGE"
#endif

// TANDEM_UNROLL stands before a loop of constant count, so that its arrays live in registers.
// TANDEM_UNROLL_8 unrolls a loop of any count by eight, so that loads overlap. TANDEM_ROLLED keeps
// a loop rolled where unrolling would need too many registers.
#ifdef __CUDACC__
#define TANDEM_UNROLL _Pragma("unroll")
#define TANDEM_UNROLL_8 _Pragma("unroll 8")
#define TANDEM_ROLLED _Pragma("unroll 1")
#else
#define TANDEM_UNROLL
#define TANDEM_UNROLL_8
#define TANDEM_ROLLED
#endif

namespace tandem {

#ifdef __CUDACC__

// TANDEM_SHARED(name, type) declares shared memory of a block: TANDEM_SHARED(sums, float[4][32]).
template <typename T>
using SharedType = T;
#define TANDEM_SHARED(name, ...) __shared__ ::tandem::SharedType<__VA_ARGS__> name

// Starts `kernel` on `stream`. Errors are reported by CudaApi::LastError or a later
// synchronisation.
template <typename... Parameters, typename... Arguments>
void Launch(void (*kernel)(Parameters...),
            const LaunchShape& shape,
            CudaStream stream,
            Arguments... arguments) {
  if (shape.shared_bytes > 48 * 1024) {
    cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel),
                         cudaFuncAttributeMaxDynamicSharedMemorySize,
                         static_cast<int>(shape.shared_bytes));
  }
  kernel<<<dim3(shape.grid_x, shape.grid_y, shape.grid_z), dim3(shape.threads), shape.shared_bytes,
           stream>>>(static_cast<Parameters>(arguments)...);
}

__device__ __forceinline__ unsigned char* SharedMemory() {
  extern __shared__ __align__(128) unsigned char tandem_shared_memory[];
  return tandem_shared_memory;
}

// Every lane of the warp calls this and receives the value of `lane`.
__device__ __forceinline__ float Shuffle(float value, int lane) {
  return __shfl_sync(0xffffffffu, value, lane);
}
__device__ __forceinline__ uint32_t Shuffle(uint32_t value, int lane) {
  return __shfl_sync(0xffffffffu, value, lane);
}
__device__ __forceinline__ float ShuffleXor(float value, int lanes) {
  return __shfl_xor_sync(0xffffffffu, value, lanes);
}
__device__ __forceinline__ uint32_t ShuffleXor(uint32_t value, int lanes) {
  return __shfl_xor_sync(0xffffffffu, value, lanes);
}
__device__ __forceinline__ uint64_t ShuffleXor(uint64_t value, int lanes) {
  return __shfl_xor_sync(0xffffffffu, static_cast<unsigned long long>(value), lanes);
}
__device__ __forceinline__ void SyncWarp() { __syncwarp(); }
// For integers only, as their sum is the same in any order.
__device__ __forceinline__ void AtomicAdd(uint64_t* sum, uint64_t value) {
  atomicAdd(reinterpret_cast<unsigned long long*>(sum), static_cast<unsigned long long>(value));
}
__device__ __forceinline__ void AtomicAdd(uint32_t* sum, uint32_t value) { atomicAdd(sum, value); }

// d += a b: a [16, 16] row-major, b [16, 8] column-major, bf16 in fragments as PTX's
// mma.m16n8k16 lays them out (PTX ISA, "Matrix Fragments for mma.m16n8k16"); fp32 sums.
__device__ __forceinline__ void MmaBf16(float (&d)[4],
                                        const uint32_t (&a)[4],
                                        const uint32_t (&b)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
      "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
// Four 8x8 matrices of 16-bit elements from shared memory; lane l gives the address of row l % 8 of
// matrix l / 8 (16 bytes, aligned to 16). Register i: of matrix i, row lane / 4, elements
// lane % 4 * 2 and the next (transposed: rows and columns swapped).
__device__ __forceinline__ void LdMatrix4(uint32_t (&r)[4], const void* row) {
  const auto address = static_cast<uint32_t>(__cvta_generic_to_shared(row));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address));
}
__device__ __forceinline__ void LdMatrix4Transposed(uint32_t (&r)[4], const void* row) {
  const auto address = static_cast<uint32_t>(__cvta_generic_to_shared(row));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address));
}
// Copies 16 bytes from device to shared memory, both aligned to 16, bypassing registers. If not
// `valid`, writes zeros and does not read `from`. A thread's copies up to CopyCommit are a group;
// CopyWait<N> waits until all but its N newest groups have arrived.
__device__ __forceinline__ void CopyAsync16(void* to, const void* from, bool valid = true) {
  const auto address = static_cast<uint32_t>(__cvta_generic_to_shared(to));
  const int bytes = valid ? 16 : 0;
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(address), "l"(from), "r"(bytes)
               : "memory");
}
__device__ __forceinline__ void CopyCommit() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
template <int kGroups>
__device__ __forceinline__ void CopyWait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kGroups) : "memory");
}

// bf16 as its 16 bits, rounded to nearest even, NaN stays NaN; two at once: `low` in the low half.
__device__ __forceinline__ uint32_t PackBf16(float low, float high) {
  uint32_t packed;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
  return packed;
}
__device__ __forceinline__ float BitsToFloat(uint32_t bits) { return __uint_as_float(bits); }
__device__ __forceinline__ uint32_t FloatToBits(float value) { return __float_as_uint(value); }

#endif  // __CUDACC__

__device__ __forceinline__ float FromBf16Bits(uint16_t bits) {
  return BitsToFloat(static_cast<uint32_t>(bits) << 16);
}
// The halves of two packed bf16.
__device__ __forceinline__ float LowBf16(uint32_t pair) { return BitsToFloat(pair << 16); }
__device__ __forceinline__ float HighBf16(uint32_t pair) { return BitsToFloat(pair & 0xffff0000u); }

// 16 bytes that are accessed as one; aligned to 16.
struct alignas(16) Words4 {
  uint32_t x, y, z, w;
};

}  // namespace tandem
