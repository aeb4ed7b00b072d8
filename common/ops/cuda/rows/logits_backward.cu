#include "common/ops/cuda/rows/element_math.h"
#include "common/ops/cuda/rows/logits.h"
#include "common/ops/cuda/rows/row_shape.h"

namespace tandem {
namespace {

// With p the softmax, l its logarithm and H the entropy, for x = logit / T:
// d log_prob / dx_j = [j = target] - p_j and dH / dx_j = -p_j * (l_j + H).
__global__ void __launch_bounds__(kWordThreads) LogitsBackward(const float* logits,
                                                               int64_t stride,
                                                               int first_id,
                                                               int vocab_limit,
                                                               const LogitsGradientRow* rows,
                                                               int cols,
                                                               uint16_t* dlogits,
                                                               int64_t dlogits_stride) {
  const int col = WordColumn();
  if (col >= cols) return;
  const int64_t at = blockIdx.x;
  const LogitsGradientRow row = rows[at];
  const float inverse_sum = 1.0f / row.stats.sum;
  const Floats8 logit = LoadFloats8(logits + at * stride + col);
  Floats8 gradient;
  TANDEM_UNROLL
  for (int i = 0; i < 8; ++i) {
    const int id = first_id + col + i;
    float x = logit.of[i] * row.inverse_temperature - row.stats.max;
    const float p = ExpOfNegative(x) * inverse_sum;
    // Of a masked logit, -inf, p is 0: so is its gradient if the slope is finite.
    if (x < kLeastSlopeLogit) x = kLeastSlopeLogit;
    const float slope =
        fmaf(row.grad_entropy, (x - row.stats.log_sum) + row.stats.entropy, row.grad_log_prob);
    float g = -(p * slope);
    if (id == row.target && logit.of[i] != -BitsToFloat(0x7f800000u)) g += row.grad_log_prob;
    gradient.of[i] = id < vocab_limit ? g * row.inverse_temperature : 0.0f;
  }
  StoreWords(dlogits + at * dlogits_stride + col, Round(gradient));
}

}  // namespace

void LaunchLogitsBackward(CudaStream stream,
                          const LogitsBlock& block,
                          const LogitsGradientRow* rows,
                          Matrix dlogits) {
  if (block.rows == 0) return;
  Launch(LogitsBackward, WordGrid(block.rows, dlogits.cols), stream, block.logits, block.stride,
         static_cast<int>(block.first_chunk * kCudaVocabChunk), static_cast<int>(block.vocab_limit),
         rows, static_cast<int>(dlogits.cols), static_cast<uint16_t*>(dlogits.data),
         dlogits.stride);
}

}  // namespace tandem
