// Row kernels: norm, add, SiLU, RoPE, KV store. Sums use 16 fixed lanes and one fixed tree.
#pragma once

#include "common/ops/cpu/kernels/kernel_set.h"
#include "common/ops/cpu/kernels/vec_elements.h"
#include "common/ops/numerics_layout.h"

namespace tandem {
namespace {

// 1 / sqrt(mean(x²) + eps)
template <typename T>
TANDEM_INLINE float InverseRms(const T* x, float eps, int64_t cols) {
  F32x16 sum = Zero();
  for (int64_t i = 0; i < cols; i += 16) {
    const F32x16 v = LoadUpTo(x + i, cols - i);
    sum = Fma(v, v, sum);
  }
  return 1.0f / __builtin_sqrtf(SumLanes(sum) / static_cast<float>(cols) + eps);
}

template <typename T>
void RmsNorm(const void* in, const void* weight, float eps, int64_t cols, void* out) {
  const T* x = static_cast<const T*>(in);
  const T* w = static_cast<const T*>(weight);
  const F32x16 scale = Set1(InverseRms(x, eps, cols));
  for (int64_t i = 0; i < cols; i += 16) {
    const F32x16 normed = RoundTo<T>(Mul(LoadUpTo(x + i, cols - i), scale));
    StoreUpTo(static_cast<T*>(out) + i, Mul(normed, LoadUpTo(w + i, cols - i)), cols - i);
  }
}

template <typename T>
void AddRow(void* x, const void* delta, int64_t cols) {
  T* sum = static_cast<T*>(x);
  const T* d = static_cast<const T*>(delta);
  for (int64_t i = 0; i < cols; i += 16) {
    StoreUpTo(sum + i, Add(LoadUpTo(sum + i, cols - i), LoadUpTo(d + i, cols - i)), cols - i);
  }
}

template <typename T>
void SiluMul(const void* gate_up, int64_t cols, void* out) {
  const T* gate = static_cast<const T*>(gate_up);
  for (int64_t i = 0; i < cols; i += 16) {
    const F32x16 g = LoadUpTo(gate + i, cols - i);
    const F32x16 u = LoadUpTo(gate + cols + i, cols - i);
    StoreUpTo(static_cast<T*>(out) + i, Mul(Mul(g, Sigmoid(g)), u), cols - i);
  }
}

// Rotates pairs (i, i + half) by the angles, or by their opposites.
template <typename T, bool kBack>
TANDEM_INLINE void Rotate(void* head, const float* cos, const float* sin, int64_t half_dim) {
  T* first = static_cast<T*>(head);
  T* second = first + half_dim;
  for (int64_t i = 0; i < half_dim; i += 16) {
    const int64_t n = half_dim - i;
    const F32x16 a = LoadUpTo(first + i, n), b = LoadUpTo(second + i, n);
    const F32x16 c = LoadUpTo(cos + i, n);
    const F32x16 s = kBack ? Negate(LoadUpTo(sin + i, n)) : LoadUpTo(sin + i, n);
    StoreUpTo(first + i, Fnma(b, s, Mul(a, c)), n);
    StoreUpTo(second + i, Fma(a, s, Mul(b, c)), n);
  }
}

template <typename T>
void Rope(void* head, const float* cos, const float* sin, int64_t half_dim) {
  Rotate<T, false>(head, cos, sin, half_dim);
}

// The first of kKvValueUnit tokens clears V of all of them: sums include all of them, with P = 0
// for tokens that do not exist yet, and the values of the block's earlier owner could be NaN.
template <typename T>
void StoreKv(const void* k, const void* v, int64_t head_dim, int64_t token, std::byte* kv_head) {
  constexpr int64_t kPerWord = 4 / sizeof(T);
  const std::byte* key = static_cast<const std::byte*>(k);
  std::byte* key_lane =
      kv_head + token / 16 * KvKeyPanelBytes(head_dim, sizeof(T)) + token % 16 * 4;
  for (int64_t w = 0; w < head_dim / kPerWord; ++w) {
    __builtin_memcpy(key_lane + w * 64, key + w * 4, 4);
  }
  const T* value = static_cast<const T*>(v);
  std::byte* values = kv_head + KvKeyBytes(head_dim, sizeof(T));
  if (token % kKvValueUnit == 0) {
    for (int64_t d = 0; d < head_dim; d += 16) {
      __builtin_memset(values + d / 16 * KvValuePanelBytes(sizeof(T)) + token / kPerWord * 64, 0,
                       kKvValueUnit / kPerWord * 64);
    }
  }
  for (int64_t d = 0; d < head_dim; ++d) {
    T* panel = reinterpret_cast<T*>(values + d / 16 * KvValuePanelBytes(sizeof(T)));
    panel[(token / kPerWord * 16 + d % 16) * kPerWord + token % kPerWord] = value[d];
  }
}

}  // namespace

// log-softmax over the vocabulary in fixed chunks: each chunk's max and sums, then the row's.

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
  // Of a chunk that is masked as a whole (every logit is -inf) both sums are 0.
  const float shift = max == -__builtin_inff() ? 0.0f : max;
  F32x16 sum = Zero(), weighted = Zero();
  for (int64_t i = 0; i < n; i += 16) {
    F32x16 x = Sub(ScaledLogits(logits + i, n - i, factor), Set1(shift));
    const F32x16 e = Exp(x);
    // A masked logit has the weight 0, and 0 * -inf would be NaN. NaN stays, as the second operand.
    x = Max(Set1(-__FLT_MAX__), x);
    // -inf times the zero weight of a missing lane would be NaN.
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
