#include "common/ops/cuda/rows/element_math.h"
#include "common/ops/cuda/rows/row_shape.h"
#include "common/ops/cuda/rows/rows.h"

namespace tandem {
namespace {

struct BackwardCall {
  const uint16_t* in;
  int64_t in_stride;
  const uint16_t* dout;
  int64_t dout_stride;
  const uint16_t* first;
  const uint16_t* second;
  float* dresidual;  // or null: din
  int64_t dresidual_stride;
  uint16_t* din;
  int64_t din_stride;
  float* inverse;      // [rows]
  float* partials;     // [blocks of kNormSumRows, cols]: of the first heads, then of the others
  int first_partials;  // of the first heads
  float* dfirst;
  float* dsecond;
  int64_t rows;  // heads of all rows
  int heads, first_heads;
  int cols;
  float eps;
};

// The offset of a head in a matrix with this stride.
__device__ __forceinline__ int64_t HeadOffset(const BackwardCall& call,
                                              int64_t row,
                                              int64_t stride) {
  if (call.heads == 1) return row * stride;
  return row / call.heads * stride + row % call.heads * call.cols;
}

template <typename Shape, int kHeld>
__global__ void __launch_bounds__(Shape::kThreads) InverseRms(BackwardCall call) {
  constexpr int kLanes = Shape::kThreads / Shape::kRows;
  const RowThread<Shape> at(call.rows);
  const uint16_t* const in = call.in + HeadOffset(call, at.row, call.in_stride);
  float sum = 0;
  TANDEM_UNROLL
  for (int i = 0; i < kHeld; ++i) {
    const int col = (at.lane + i * kLanes) * 8;
    if (col >= call.cols) continue;
    const Floats8 x = Widen(LoadWords(in + col));
    TANDEM_UNROLL
    for (int j = 0; j < 8; ++j) sum = fmaf(x.of[j], x.of[j], sum);
  }
  const float scale = 1.0f / sqrtf(Shape::Sum(sum) / static_cast<float>(call.cols) + call.eps);
  if (at.stores && at.lane == 0) call.inverse[at.row] = scale;
}

// With n = x * r: dx = r * (dn - n * mean(dn * n)), dn = dout * weight.
template <typename Shape, int kHeld>
__global__ void __launch_bounds__(Shape::kThreads) NormBackward(BackwardCall call) {
  constexpr int kLanes = Shape::kThreads / Shape::kRows;
  const RowThread<Shape> at(call.rows);
  const uint16_t* const in = call.in + HeadOffset(call, at.row, call.in_stride);
  const uint16_t* const dout = call.dout + HeadOffset(call, at.row, call.dout_stride);
  const float r = call.inverse[at.row];
  const bool is_first = call.heads == 1 || at.row % call.heads < call.first_heads;
  const uint16_t* const weight = is_first ? call.first : call.second;
  Floats8 n[kHeld], dn[kHeld];
  float sum = 0;
  TANDEM_UNROLL
  for (int i = 0; i < kHeld; ++i) {
    const int col = (at.lane + i * kLanes) * 8;
    if (col >= call.cols) continue;
    n[i] = Widen(LoadWords(in + col));
    dn[i] = Widen(LoadWords(dout + col));
    const Floats8 w = Widen(LoadWords(weight + col));
    TANDEM_UNROLL
    for (int j = 0; j < 8; ++j) {
      n[i].of[j] *= r;
      dn[i].of[j] *= w.of[j];
      sum = fmaf(dn[i].of[j], n[i].of[j], sum);
    }
  }
  const float mean = Shape::Sum(sum) / static_cast<float>(call.cols);
  if (!at.stores) return;
  TANDEM_UNROLL
  for (int i = 0; i < kHeld; ++i) {
    const int col = (at.lane + i * kLanes) * 8;
    if (col >= call.cols) continue;
    Floats8 dx;
    TANDEM_UNROLL
    for (int j = 0; j < 8; ++j) dx.of[j] = r * fmaf(-n[i].of[j], mean, dn[i].of[j]);
    if (call.dresidual != nullptr) {
      float* const to = call.dresidual + HeadOffset(call, at.row, call.dresidual_stride) + col;
      Floats8 sums = LoadFloats8(to);
      TANDEM_UNROLL
      for (int j = 0; j < 8; ++j) sums.of[j] += dx.of[j];
      StoreFloats8(to, sums);
    } else {
      StoreWords(call.din + HeadOffset(call, at.row, call.din_stride) + col, Round(dx));
    }
  }
}

constexpr int kPartialThreads = 64;

// A block sums kNormSumRows rows of one weight in ascending order, and the heads in a row; a thread
// handles two columns.
__global__ void __launch_bounds__(kPartialThreads) WeightPartials(BackwardCall call) {
  const int col = static_cast<int>(blockIdx.y * kPartialThreads + threadIdx.x) * 2;
  if (col >= call.cols) return;
  const bool is_first = static_cast<int>(blockIdx.x) < call.first_partials;
  const int first_head = is_first ? 0 : call.first_heads;
  const int heads = is_first ? call.first_heads : call.heads - call.first_heads;
  const int64_t rows = call.rows / call.heads * heads;
  const int64_t block = int64_t{blockIdx.x} - (is_first ? 0 : call.first_partials);
  const int64_t first = block * kNormSumRows;
  const int64_t last = first + kNormSumRows < rows ? first + kNormSumRows : rows;
  int64_t row = first / heads;
  int head = static_cast<int>(first - row * heads);
  float low = 0, high = 0;
  TANDEM_UNROLL_8
  for (int64_t i = first; i < last; ++i) {
    const float r = call.inverse[row * call.heads + first_head + head];
    const int64_t offset = int64_t{first_head + head} * call.cols + col;
    const uint32_t x = *reinterpret_cast<const uint32_t*>(call.in + row * call.in_stride + offset);
    const uint32_t d =
        *reinterpret_cast<const uint32_t*>(call.dout + row * call.dout_stride + offset);
    if (++head == heads) {
      head = 0;
      ++row;
    }
    // As in the forward pass, the weight is multiplied by the rounded value.
    const uint32_t normed = PackBf16(LowBf16(x) * r, HighBf16(x) * r);
    low = fmaf(LowBf16(d), LowBf16(normed), low);
    high = fmaf(HighBf16(d), HighBf16(normed), high);
  }
  float* const to = call.partials + int64_t{blockIdx.x} * call.cols + col;
  to[0] = low;
  to[1] = high;
}

// Blocks along y are the two weights.
__global__ void __launch_bounds__(kPartialThreads) AddPartials(BackwardCall call, int partials) {
  const int col = static_cast<int>(blockIdx.x * kPartialThreads + threadIdx.x);
  if (col >= call.cols) return;
  const bool is_first = blockIdx.y == 0;
  const int last = is_first ? call.first_partials : partials;
  float* const sums = is_first ? call.dfirst : call.dsecond;
  if (sums == nullptr) return;
  float sum = sums[col];
  TANDEM_UNROLL_8
  for (int i = is_first ? 0 : call.first_partials; i < last; ++i) {
    sum += call.partials[int64_t{i} * call.cols + col];
  }
  sums[col] = sum;
}

unsigned Blocks(int64_t items, int64_t of_each) {
  return static_cast<unsigned>((items + of_each - 1) / of_each);
}

}  // namespace

void LaunchRmsNormBackward(CudaStream stream,
                           const NormRows& norm,
                           const NormScratch& scratch,
                           Matrix in,
                           Matrix dout,
                           const NormGradients& gradients) {
  const BackwardCall call = {.in = static_cast<const uint16_t*>(in.data),
                             .in_stride = in.stride,
                             .dout = static_cast<const uint16_t*>(dout.data),
                             .dout_stride = dout.stride,
                             .first = static_cast<const uint16_t*>(norm.first),
                             .second = static_cast<const uint16_t*>(norm.second),
                             .dresidual = gradients.dresidual.data,
                             .dresidual_stride = gradients.dresidual.stride,
                             .din = static_cast<uint16_t*>(gradients.din.data),
                             .din_stride = gradients.din.stride,
                             .inverse = scratch.inverse,
                             .partials = scratch.partials,
                             .first_partials = static_cast<int>(FirstNormPartials(norm)),
                             .dfirst = gradients.dfirst,
                             .dsecond = gradients.dsecond,
                             .rows = norm.rows * norm.heads,
                             .heads = static_cast<int>(norm.heads),
                             .first_heads = static_cast<int>(norm.first_heads),
                             .cols = static_cast<int>(norm.cols),
                             .eps = norm.eps};
  if (call.rows == 0) return;
  ForRowShape(call.cols, [&]<int kLanes, int kHeld>(RowShape<kLanes, kHeld>) {
    using Shape = RowShape<kLanes, kHeld>;
    const LaunchShape rows = {.grid_x = Blocks(call.rows, Shape::kRows),
                              .threads = Shape::kThreads};
    Launch(InverseRms<Shape, kHeld>, rows, stream, call);
    // Must run before the rows, because din may be dout.
    const auto partials = static_cast<unsigned>(NormPartials(norm));
    Launch(WeightPartials,
           {.grid_x = partials,
            .grid_y = Blocks(call.cols, 2 * kPartialThreads),
            .threads = kPartialThreads},
           stream, call);
    Launch(AddPartials,
           {.grid_x = Blocks(call.cols, kPartialThreads),
            .grid_y = norm.first_heads < norm.heads ? 2u : 1u,
            .threads = kPartialThreads},
           stream, call, static_cast<int>(partials));
    Launch(NormBackward<Shape, kHeld>, rows, stream, call);
  });
}

}  // namespace tandem
