#include "common/device/cuda/kernel.h"
#include "common/ops/cuda/linear/proof_kernels.h"

namespace tandem::cuda {
namespace {

constexpr int kThreads = 256, kMaxBlocks = 1024;

// A mixer of 32 bits: every bit of the result depends on every bit of `x`.
__device__ __forceinline__ uint32_t Mix(uint32_t x) {
  x = (x ^ x >> 16) * 0x7feb352du;
  x = (x ^ x >> 15) * 0x846ca68bu;
  return x ^ x >> 16;
}

__global__ void FillNumbers(Words4* to, int64_t chunks, uint32_t seed) {
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < chunks; i += step) {
    uint32_t pairs[4];
    TANDEM_UNROLL
    for (int p = 0; p < 4; ++p) {
      const uint32_t bits = Mix(static_cast<uint32_t>(i * 4 + p) ^ seed);
      constexpr float kScale = 1.0f / 32768.0f;
      pairs[p] = PackBf16(static_cast<float>(bits & 0xffffu) * kScale - 1.0f,
                          static_cast<float>(bits >> 16) * kScale - 1.0f);
    }
    to[i] = {pairs[0], pairs[1], pairs[2], pairs[3]};
  }
}

__global__ void CountDifferences(const uint32_t* a,
                                 const uint32_t* b,
                                 int64_t words,
                                 uint32_t* differences) {
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  uint32_t count = 0;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < words; i += step) {
    count += a[i] != b[i] ? 1 : 0;
  }
  if (count > 0) AtomicAdd(differences, count);
}

__device__ __forceinline__ float ToFloat(uint16_t bits) { return FromBf16Bits(bits); }
__device__ __forceinline__ float ToFloat(float value) { return value; }

template <typename T>
__global__ void CountFar(
    const T* a, const T* b, int64_t elements, float absolute, uint32_t* count) {
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  uint32_t far = 0;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < elements; i += step) {
    const float x = ToFloat(a[i]), y = ToFloat(b[i]);
    const float apart = fabsf(x - y), larger = fmaxf(fabsf(x), fabsf(y));
    far += apart <= absolute + larger * 0.0078125f ? 0 : 1;  // a NaN is far from everything
  }
  if (far > 0) AtomicAdd(count, far);
}

LaunchShape ShapeFor(int64_t items) {
  LaunchShape shape;
  const int64_t blocks = (items + kThreads - 1) / kThreads;
  shape.grid_x = static_cast<unsigned>(blocks < kMaxBlocks ? blocks : kMaxBlocks);
  shape.threads = kThreads;
  return shape;
}

}  // namespace

void LaunchFillNumbers(void* to, int64_t elements, uint32_t seed, CudaStream stream) {
  const int64_t chunks = elements / 8;
  Launch(FillNumbers, ShapeFor(chunks), stream, static_cast<Words4*>(to), chunks, seed);
}

void LaunchCountDifferences(
    const void* a, const void* b, int64_t words, uint32_t* differences, CudaStream stream) {
  Launch(CountDifferences, ShapeFor(words), stream, static_cast<const uint32_t*>(a),
         static_cast<const uint32_t*>(b), words, differences);
}

void LaunchCountFar(const void* a,
                    const void* b,
                    int64_t elements,
                    bool bf16,
                    float absolute,
                    uint32_t* count,
                    CudaStream stream) {
  if (bf16) {
    Launch(CountFar<uint16_t>, ShapeFor(elements), stream, static_cast<const uint16_t*>(a),
           static_cast<const uint16_t*>(b), elements, absolute, count);
  } else {
    Launch(CountFar<float>, ShapeFor(elements), stream, static_cast<const float*>(a),
           static_cast<const float*>(b), elements, absolute, count);
  }
}

}  // namespace tandem::cuda
