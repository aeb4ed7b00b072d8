#include "common/ops/cuda/rows/element_math.h"
#include "common/ops/cuda/rows/row_shape.h"
#include "common/ops/cuda/rows/rows.h"

namespace tandem {
namespace {

struct NormCall {
  const uint16_t* in;
  int64_t in_stride;
  uint16_t* x;  // receives in + delta; null: there is no delta
  const uint16_t* delta;
  int64_t delta_stride;
  uint16_t* out;
  int64_t out_stride;
  const uint16_t* first;
  const uint16_t* second;
  int64_t rows;  // heads of all rows
  int heads, first_heads;
  int cols;
  float eps;
};

template <typename Shape, int kHeld, bool kAdds>
__global__ void __launch_bounds__(Shape::kThreads) Norm(NormCall call) {
  constexpr int kLanes = Shape::kThreads / Shape::kRows;
  const RowThread<Shape> at(call.rows);
  const int64_t row = call.heads == 1 ? at.row : at.row / call.heads;
  const int head = call.heads == 1 ? 0 : static_cast<int>(at.row - row * call.heads);
  const int64_t first_col = int64_t{head} * call.cols;
  Floats8 held[kHeld];
  float sum = 0;
  TANDEM_UNROLL
  for (int i = 0; i < kHeld; ++i) {
    const int col = (at.lane + i * kLanes) * 8;
    if (col >= call.cols) continue;
    const int64_t offset = row * call.in_stride + first_col + col;
    Words4 words = LoadWords(call.in + offset);
    if constexpr (kAdds) {
      Floats8 x = Widen(words);
      const Floats8 d = Widen(LoadWords(call.delta + row * call.delta_stride + first_col + col));
      TANDEM_UNROLL
      for (int j = 0; j < 8; ++j) x.of[j] += d.of[j];
      words = Round(x);
      if (at.stores) StoreWords(call.x + offset, words);
    }
    held[i] = Widen(words);
    TANDEM_UNROLL
    for (int j = 0; j < 8; ++j) sum = fmaf(held[i].of[j], held[i].of[j], sum);
  }
  const float scale = 1.0f / sqrtf(Shape::Sum(sum) / static_cast<float>(call.cols) + call.eps);
  if (!at.stores) return;
  const uint16_t* const weight = head < call.first_heads ? call.first : call.second;
  TANDEM_UNROLL
  for (int i = 0; i < kHeld; ++i) {
    const int col = (at.lane + i * kLanes) * 8;
    if (col >= call.cols) continue;
    const Floats8 w = Widen(LoadWords(weight + col));
    Floats8 product;
    TANDEM_UNROLL
    for (int j = 0; j < 8; ++j) product.of[j] = held[i].of[j] * scale;
    product = Widen(Round(product));
    TANDEM_UNROLL
    for (int j = 0; j < 8; ++j) product.of[j] *= w.of[j];
    StoreWords(call.out + row * call.out_stride + first_col + col, Round(product));
  }
}

template <bool kAdds>
void LaunchNorm(CudaStream stream, const NormCall& call) {
  if (call.rows == 0) return;
  ForRowShape(call.cols, [&]<int kLanes, int kHeld>(RowShape<kLanes, kHeld>) {
    using Shape = RowShape<kLanes, kHeld>;
    const auto blocks = static_cast<unsigned>((call.rows + Shape::kRows - 1) / Shape::kRows);
    Launch(Norm<Shape, kHeld, kAdds>, {.grid_x = blocks, .threads = Shape::kThreads}, stream, call);
  });
}

NormCall CallOf(const NormRows& norm, Matrix in, Matrix out) {
  return {.in = static_cast<const uint16_t*>(in.data),
          .in_stride = in.stride,
          .x = nullptr,
          .delta = nullptr,
          .delta_stride = 0,
          .out = static_cast<uint16_t*>(out.data),
          .out_stride = out.stride,
          .first = static_cast<const uint16_t*>(norm.first),
          .second = static_cast<const uint16_t*>(norm.second),
          .rows = norm.rows * norm.heads,
          .heads = static_cast<int>(norm.heads),
          .first_heads = static_cast<int>(norm.first_heads),
          .cols = static_cast<int>(norm.cols),
          .eps = norm.eps};
}

}  // namespace

void LaunchRmsNorm(CudaStream stream, const NormRows& norm, Matrix in, Matrix out) {
  LaunchNorm<false>(stream, CallOf(norm, in, out));
}

void LaunchAddRmsNorm(CudaStream stream, const NormRows& norm, Matrix x, Matrix delta, Matrix out) {
  NormCall call = CallOf(norm, x, out);
  call.x = static_cast<uint16_t*>(x.data);
  call.delta = static_cast<const uint16_t*>(delta.data);
  call.delta_stride = delta.stride;
  LaunchNorm<true>(stream, call);
}

}  // namespace tandem
