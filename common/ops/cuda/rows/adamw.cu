#include "common/ops/cuda/rows/adamw.h"
#include "common/ops/cuda/rows/element_math.h"

namespace tandem {
namespace {

// A thread has four elements that are a block's width apart: every access of a warp covers complete
// lines, for any alignment of an array, and four loads of each stream are in flight.
constexpr int kThreads = 256;
constexpr int kPerThread = 4;
constexpr int64_t kPerBlock = int64_t{kThreads} * kPerThread;

LaunchShape Shape(int64_t count) {
  return {.grid_x = static_cast<unsigned>((count + kPerBlock - 1) / kPerBlock),
          .threads = kThreads};
}
__device__ __forceinline__ int64_t FirstElement() {
  return int64_t{blockIdx.x} * kPerBlock + threadIdx.x;
}

// Adds a warp's counts to *sum. Every lane must call it.
__device__ __forceinline__ void AddWarpCount(uint32_t count, uint64_t* sum) {
  TANDEM_UNROLL
  for (int lanes = 16; lanes > 0; lanes /= 2) count += ShuffleXor(count, lanes);
  if (threadIdx.x % 32 == 0 && count != 0) AtomicAdd(sum, uint64_t{count});
}

__global__ void __launch_bounds__(kThreads)
    AdamW(AdamWArrays arrays, AdamWFactors f, uint64_t* changed) {
  uint32_t count = 0;
  TANDEM_UNROLL
  for (int k = 0; k < kPerThread; ++k) {
    const int64_t i = FirstElement() + k * kThreads;
    if (i >= arrays.count) continue;
    const float g = arrays.gradient[i] * f.gradient_scale;
    const float m0 = arrays.exp_avg[i];
    const float m = m0 + (g - m0) * f.weight1;
    const float v = arrays.exp_avg_sq[i] * f.beta2 + g * g * f.weight2;
    const float master = arrays.master[i] * f.decay -
                         f.step_size * (m / (sqrtf(v) / f.sqrt_bias_correction2 + f.eps));
    arrays.exp_avg[i] = m;
    arrays.exp_avg_sq[i] = v;
    arrays.master[i] = master;
    if (arrays.rounded == nullptr) continue;
    const uint16_t result = WeightBits(master);
    if (arrays.rounded[i] == result) continue;
    arrays.rounded[i] = result;
    ++count;
  }
  AddWarpCount(count, changed);
}

__global__ void __launch_bounds__(kThreads)
    RoundArray(const float* values, Bf16* rounded, int64_t elements, uint64_t* changed) {
  uint32_t count = 0;
  TANDEM_UNROLL
  for (int k = 0; k < kPerThread; ++k) {
    const int64_t i = FirstElement() + k * kThreads;
    if (i >= elements) continue;
    const uint16_t result = WeightBits(values[i]);
    if (changed != nullptr && rounded[i] != result) ++count;
    rounded[i] = result;
  }
  if (changed != nullptr) AddWarpCount(count, changed);
}

// Eight threads share a block of values; each has every eighth one.
__global__ void __launch_bounds__(kThreads)
    LaneSquares(const float* values, int64_t elements, int64_t lanes, double* sums) {
  const int64_t thread = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (thread >= lanes) return;
  const int64_t first = thread / 8 * kCudaSquaresBlock;
  const int64_t last = first + kCudaSquaresBlock < elements ? first + kCudaSquaresBlock : elements;
  double sum = 0;
  TANDEM_UNROLL_8
  for (int64_t i = first + thread % 8; i < last; i += 8) {
    const auto value = static_cast<double>(values[i]);
    sum += value * value;
  }
  sums[thread] = sum;
}

__global__ void __launch_bounds__(kThreads)
    GroupSquares(const double* sums, int64_t lanes, int64_t groups, double* totals) {
  const int64_t group = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (group >= groups) return;
  const int64_t first = group * kSquaresOfGroup;
  const int64_t last = first + kSquaresOfGroup < lanes ? first + kSquaresOfGroup : lanes;
  double total = 0;
  TANDEM_UNROLL_8
  for (int64_t i = first; i < last; ++i) total += sums[i];
  totals[group] = total;
}

LaunchShape ThreadEach(int64_t count) {
  return {.grid_x = static_cast<unsigned>((count + kThreads - 1) / kThreads), .threads = kThreads};
}

}  // namespace

void LaunchAdamW(CudaStream stream,
                 const AdamWArrays& arrays,
                 const AdamWFactors& factors,
                 uint64_t* changed) {
  if (arrays.count == 0) return;
  Launch(AdamW, Shape(arrays.count), stream, arrays, factors, changed);
}

void LaunchRoundArray(
    CudaStream stream, const float* values, Bf16* rounded, int64_t count, uint64_t* changed) {
  if (count == 0) return;
  Launch(RoundArray, Shape(count), stream, values, rounded, count, changed);
}

void LaunchSumOfSquares(
    CudaStream stream, const float* values, int64_t count, double* lanes, double* groups) {
  if (count == 0) return;
  Launch(LaneSquares, ThreadEach(SquareLanes(count)), stream, values, count, SquareLanes(count),
         lanes);
  Launch(GroupSquares, ThreadEach(SquareGroups(count)), stream, lanes, SquareLanes(count),
         SquareGroups(count), groups);
}

}  // namespace tandem
