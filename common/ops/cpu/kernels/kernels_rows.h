// Row kernels: norm, add, SiLU, RoPE, KV store. Sums use 16 fixed lanes and one fixed tree.
#pragma once

#include "common/ops/cpu/kernels/vec_elements.h"
#include "common/ops/kv_layout.h"

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

// Rotates pairs (i, i + half) by the angles, or back.
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

// The first of kKvValueUnit tokens clears V of them all: sums go over all of them, with P = 0 where
// there is no token yet, and what an earlier owner of the block left could be no number.
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
}  // namespace tandem
