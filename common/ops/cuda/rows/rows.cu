#include "common/ops/cuda/rows/element_math.h"
#include "common/ops/cuda/rows/row_shape.h"
#include "common/ops/cuda/rows/rows.h"

namespace tandem {
namespace {

__global__ void __launch_bounds__(kWordThreads) TakeRows(const uint16_t* in,
                                                         int64_t in_stride,
                                                         const int32_t* rows,
                                                         int cols,
                                                         uint16_t* out,
                                                         int64_t out_stride) {
  const int col = WordColumn();
  if (col >= cols) return;
  const int64_t row = blockIdx.x;
  StoreWords(out + row * out_stride + col, LoadWords(in + rows[row] * in_stride + col));
}

__global__ void __launch_bounds__(kWordThreads)
    AddRows(uint16_t* x, int64_t x_stride, const uint16_t* delta, int64_t delta_stride, int cols) {
  const int col = WordColumn();
  if (col >= cols) return;
  const int64_t row = blockIdx.x;
  uint16_t* const at = x + row * x_stride + col;
  Floats8 sum = Widen(LoadWords(at));
  const Floats8 d = Widen(LoadWords(delta + row * delta_stride + col));
  TANDEM_UNROLL
  for (int i = 0; i < 8; ++i) sum.of[i] += d.of[i];
  StoreWords(at, Round(sum));
}

__global__ void __launch_bounds__(kWordThreads)
    SiluMul(const uint16_t* gate_up, int64_t in_stride, int cols, uint16_t* out, int64_t stride) {
  const int col = WordColumn();
  if (col >= cols) return;
  const uint16_t* const in = gate_up + blockIdx.x * in_stride + col;
  const Floats8 g = Widen(LoadWords(in)), u = Widen(LoadWords(in + cols));
  Floats8 product;
  TANDEM_UNROLL
  for (int i = 0; i < 8; ++i) product.of[i] = g.of[i] * Sigmoid(g.of[i]) * u.of[i];
  StoreWords(out + blockIdx.x * stride + col, Round(product));
}

uint16_t* Data(const Matrix& matrix) { return static_cast<uint16_t*>(matrix.data); }

}  // namespace

void LaunchTakeRows(CudaStream stream, Matrix in, const int32_t* rows, Matrix out) {
  if (out.rows == 0) return;
  Launch(TakeRows, WordGrid(out.rows, out.cols), stream, Data(in), in.stride, rows,
         static_cast<int>(out.cols), Data(out), out.stride);
}

void LaunchAdd(CudaStream stream, Matrix x, Matrix delta) {
  if (x.rows == 0) return;
  Launch(AddRows, WordGrid(x.rows, x.cols), stream, Data(x), x.stride, Data(delta), delta.stride,
         static_cast<int>(x.cols));
}

void LaunchSiluMul(CudaStream stream, Matrix gate_up, Matrix out) {
  if (out.rows == 0) return;
  Launch(SiluMul, WordGrid(out.rows, out.cols), stream, Data(gate_up), gate_up.stride,
         static_cast<int>(out.cols), Data(out), out.stride);
}

}  // namespace tandem
