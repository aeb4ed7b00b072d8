#include "common/ops/cuda/rows/element_math.h"
#include "common/ops/cuda/rows/row_shape.h"
#include "common/ops/cuda/rows/rows.h"

namespace tandem {
namespace {

__global__ void __launch_bounds__(kWordThreads)
    RoundRows(const float* in, int64_t in_stride, int cols, uint16_t* out, int64_t out_stride) {
  const int col = WordColumn();
  if (col >= cols) return;
  const int64_t row = blockIdx.x;
  StoreWords(out + row * out_stride + col, Round(LoadFloats8(in + row * in_stride + col)));
}

struct SiluCall {
  const uint16_t* gate_up;
  int64_t gate_up_stride;
  const uint16_t* dout;
  int64_t dout_stride;
  uint16_t* dgate_up;
  int64_t dgate_up_stride;
  int cols;
};

__global__ void __launch_bounds__(kWordThreads) SiluMulBackward(SiluCall call) {
  const int col = WordColumn();
  if (col >= call.cols) return;
  const int64_t row = blockIdx.x;
  const uint16_t* const in = call.gate_up + row * call.gate_up_stride + col;
  const Floats8 g = Widen(LoadWords(in)), u = Widen(LoadWords(in + call.cols));
  const Floats8 d = Widen(LoadWords(call.dout + row * call.dout_stride + col));
  Floats8 dgate, dup;
  TANDEM_UNROLL
  for (int i = 0; i < 8; ++i) {
    const float s = Sigmoid(g.of[i]);
    // d silu / d gate = s * (1 + g * (1 - s))
    dgate.of[i] = d.of[i] * u.of[i] * (s * fmaf(g.of[i], 1.0f - s, 1.0f));
    dup.of[i] = d.of[i] * (g.of[i] * s);
  }
  uint16_t* const out = call.dgate_up + row * call.dgate_up_stride + col;
  StoreWords(out, Round(dgate));
  StoreWords(out + call.cols, Round(dup));
}

// A block along x handles a run, a thread one column of it.
__global__ void __launch_bounds__(kWordThreads) AddRowRuns(const RowRun* runs,
                                                           const int32_t* order,
                                                           const float* x,
                                                           int64_t x_stride,
                                                           int cols,
                                                           float* sums,
                                                           int64_t sums_stride) {
  const int col = static_cast<int>(blockIdx.y * kWordThreads + threadIdx.x);
  if (col >= cols) return;
  const RowRun run = runs[blockIdx.x];
  float* const at = sums + run.id * sums_stride + col;
  float sum = *at;
  TANDEM_UNROLL_8
  for (int i = run.first; i < run.last; ++i) sum += x[order[i] * x_stride + col];
  *at = sum;
}

}  // namespace

void LaunchRound(CudaStream stream, FloatMatrix in, Matrix out) {
  if (in.rows == 0) return;
  Launch(RoundRows, WordGrid(in.rows, in.cols), stream, in.data, in.stride,
         static_cast<int>(in.cols), static_cast<uint16_t*>(out.data), out.stride);
}

void LaunchSiluMulBackward(CudaStream stream, Matrix gate_up, Matrix dout, Matrix dgate_up) {
  if (dout.rows == 0) return;
  const SiluCall call = {.gate_up = static_cast<const uint16_t*>(gate_up.data),
                         .gate_up_stride = gate_up.stride,
                         .dout = static_cast<const uint16_t*>(dout.data),
                         .dout_stride = dout.stride,
                         .dgate_up = static_cast<uint16_t*>(dgate_up.data),
                         .dgate_up_stride = dgate_up.stride,
                         .cols = static_cast<int>(dout.cols)};
  Launch(SiluMulBackward, WordGrid(dout.rows, dout.cols), stream, call);
}

void LaunchAddRowRuns(CudaStream stream,
                      const RowRun* runs,
                      int64_t count,
                      const int32_t* order,
                      FloatMatrix x,
                      float* sums,
                      int64_t sums_stride) {
  if (count == 0) return;
  const LaunchShape shape = {
      .grid_x = static_cast<unsigned>(count),
      .grid_y = static_cast<unsigned>((x.cols + kWordThreads - 1) / kWordThreads),
      .threads = kWordThreads};
  Launch(AddRowRuns, shape, stream, runs, order, x.data, x.stride, static_cast<int>(x.cols), sums,
         sums_stride);
}

}  // namespace tandem
