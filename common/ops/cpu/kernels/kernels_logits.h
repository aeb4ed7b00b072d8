// log-softmax over the vocabulary in fixed chunks: each chunk's max and sums, then the row's.
#pragma once

#include "common/ops/cpu/kernels/kernel_set.h"
#include "common/ops/cpu/kernels/vec_elements.h"

namespace tandem {
namespace {

// logits / T with -inf in the lanes from n on.
TANDEM_INLINE F32x16 ScaledLogits(const float* logits, int64_t n, F32x16 inverse_temperature) {
  const F32x16 x = Mul(LoadUpTo(logits, n), inverse_temperature);
  return n >= 16 ? x : KeepFirst(x, n, -__builtin_inff());
}

void LogitChunkStats(const float* logits, int64_t n, float inverse_temperature, ChunkStats* out) {
  const F32x16 factor = Set1(inverse_temperature);
  F32x16 highest = Set1(-__builtin_inff());
  for (int64_t i = 0; i < n; i += 16) {
    highest = Max(highest, ScaledLogits(logits + i, n - i, factor));
  }
  const float max = MaxLanes(highest);
  F32x16 sum = Zero(), weighted = Zero();
  for (int64_t i = 0; i < n; i += 16) {
    F32x16 x = Sub(ScaledLogits(logits + i, n - i, factor), Set1(max));
    const F32x16 e = Exp(x);
    // -inf times the zero weight of a missing lane is no number.
    if (n - i < 16) x = KeepFirst(x, n - i, 0.0f);
    sum = Add(sum, e);
    weighted = Fma(e, x, weighted);
  }
  *out = {max, SumLanes(sum), SumLanes(weighted)};
}

void CombineChunks(const ChunkStats* chunks, int64_t n, RowStats* out) {
  float max = chunks[0].max;
  for (int64_t i = 1; i < n; ++i) max = chunks[i].max > max ? chunks[i].max : max;
  float sum = 0, weighted = 0;
  for (int64_t i = 0; i < n; ++i) {
    const float shift = chunks[i].max - max;
    const float scale = Exp(shift);
    sum += chunks[i].sum * scale;
    if (scale != 0.0f) weighted += scale * (chunks[i].weighted + shift * chunks[i].sum);
  }
  out->max = max;
  out->sum = sum;
  // In double, rounded once: no dependence on the math library's float version.
  out->log_sum = static_cast<float>(__builtin_log(static_cast<double>(sum)));
  out->entropy = out->log_sum - weighted / sum;
}

void ExpLogits(const float* logits, int64_t n, float inverse_temperature, float max, float* out) {
  for (int64_t i = 0; i < n; i += 16) {
    const F32x16 x = Sub(ScaledLogits(logits + i, n - i, Set1(inverse_temperature)), Set1(max));
    StoreUpTo(out + i, Exp(x), n - i);
  }
}

}  // namespace
}  // namespace tandem
