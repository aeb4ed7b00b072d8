// Backward kernels of norms, SiLU, RoPE, softmax and log-softmax, and the sums over rows.
#pragma once

#include "common/ops/cpu/kernels/kernel_set.h"
#include "common/ops/cpu/kernels/rows.h"

namespace tandem {
namespace {

template <typename T>
void RoundRow(const float* in, int64_t cols, void* out) {
  for (int64_t i = 0; i < cols; i += 16) {
    StoreUpTo(static_cast<T*>(out) + i, LoadUpTo(in + i, cols - i), cols - i);
  }
}

template <typename T>
float InverseRmsOf(const void* in, float eps, int64_t cols) {
  return InverseRms(static_cast<const T*>(in), eps, cols);
}

// With n = x * r: dx = r * (dn - n * mean(dn * n)), dn = dout * weight.
template <typename T>
void RmsNormBack(const RmsNormBackRow& row, int64_t cols) {
  const T* x = static_cast<const T*>(row.in);
  const T* w = static_cast<const T*>(row.weight);
  const T* dout = static_cast<const T*>(row.dout);
  const F32x16 r = Set1(row.inverse_rms);
  F32x16 sum = Zero();
  for (int64_t i = 0; i < cols; i += 16) {
    const int64_t n = cols - i;
    const F32x16 dn = Mul(LoadUpTo(dout + i, n), LoadUpTo(w + i, n));
    sum = Fma(dn, Mul(LoadUpTo(x + i, n), r), sum);
  }
  const F32x16 mean = Set1(SumLanes(sum) / static_cast<float>(cols));
  for (int64_t i = 0; i < cols; i += 16) {
    const int64_t n = cols - i;
    const F32x16 dn = Mul(LoadUpTo(dout + i, n), LoadUpTo(w + i, n));
    const F32x16 dx = Mul(r, Fnma(Mul(LoadUpTo(x + i, n), r), mean, dn));
    if (row.dresidual != nullptr) {
      StoreUpTo(row.dresidual + i, Add(LoadUpTo(row.dresidual + i, n), dx), n);
    } else {
      StoreUpTo(static_cast<T*>(row.din) + i, dx, n);
    }
  }
}

template <typename T>
void RmsNormWeight(const RmsNormWeightCall& call, int64_t col0, int64_t col1) {
  for (int64_t col = col0; col < col1; col += 16) {
    const int64_t n = col1 - col;
    F32x16 sum = LoadUpTo(call.dweight + col, n);
    for (int64_t row = 0; row < call.rows; ++row) {
      const T* x = static_cast<const T*>(call.in) + row * call.in_stride + col;
      const T* dout = static_cast<const T*>(call.dout) + row * call.dout_stride + col;
      // As in the forward pass, the weight is multiplied by the rounded value.
      const F32x16 normed = RoundTo<T>(Mul(LoadUpTo(x, n), Set1(call.inverse_rms[row])));
      sum = Fma(LoadUpTo(dout, n), normed, sum);
    }
    StoreUpTo(call.dweight + col, sum, n);
  }
}

template <typename T>
void SiluMulBack(const void* gate_up, const void* dout, int64_t cols, void* dgate_up) {
  const T* gate = static_cast<const T*>(gate_up);
  T* dgate = static_cast<T*>(dgate_up);
  for (int64_t i = 0; i < cols; i += 16) {
    const int64_t n = cols - i;
    const F32x16 g = LoadUpTo(gate + i, n), u = LoadUpTo(gate + cols + i, n);
    const F32x16 d = LoadUpTo(static_cast<const T*>(dout) + i, n);
    const F32x16 s = Sigmoid(g);
    // d silu / d gate = s * (1 + g * (1 - s))
    const F32x16 slope = Mul(s, Fma(g, Sub(Set1(1.0f), s), Set1(1.0f)));
    StoreUpTo(dgate + i, Mul(Mul(d, u), slope), n);
    StoreUpTo(dgate + cols + i, Mul(d, Mul(g, s)), n);
  }
}

template <typename T>
void RopeBack(void* head, const float* cos, const float* sin, int64_t half_dim) {
  Rotate<T, true>(head, cos, sin, half_dim);
}

template <typename T>
void AddRows(const RowSumCall& call, int64_t col0, int64_t col1) {
  for (int64_t row = 0; row < call.rows; ++row) {
    const T* x = static_cast<const T*>(call.x) + row * call.x_stride;
    float* sums = call.sums + (call.ids == nullptr ? 0 : call.ids[row]) * call.sums_stride;
    for (int64_t col = col0; col < col1; col += 16) {
      const int64_t n = col1 - col;
      StoreUpTo(sums + col, Add(LoadUpTo(sums + col, n), LoadUpTo(x + col, n)), n);
    }
  }
}

template <typename T>
float DotRows(const void* a, const void* b, int64_t cols) {
  F32x16 sum = Zero();
  for (int64_t i = 0; i < cols; i += 16) {
    sum = Fma(LoadUpTo(static_cast<const T*>(a) + i, cols - i),
              LoadUpTo(static_cast<const T*>(b) + i, cols - i), sum);
  }
  return SumLanes(sum);
}

// P = softmax(scores * scale); dS = P * (dP - delta) * scale.
template <typename T>
void SoftmaxBack(const SoftmaxBackRow& row) {
  const F32x16 scale = Set1(row.scale);
  F32x16 highest = Set1(-__builtin_inff());
  for (int64_t i = 0; i < row.keys; i += 16) {
    F32x16 x = Mul(Load(row.scores + i), scale);
    if (row.keys - i < 16) x = KeepFirst(x, row.keys - i, -__builtin_inff());
    Store(row.scores + i, x);
    highest = Max(highest, x);
  }
  const F32x16 max = Set1(MaxLanes(highest));
  F32x16 sum = Zero();
  for (int64_t i = 0; i < row.keys; i += 16) {
    const F32x16 e = Exp(Sub(Load(row.scores + i), max));
    Store(row.scores + i, e);
    sum = Add(sum, e);
  }
  const F32x16 inverse = Set1(1.0f / SumLanes(sum));
  T* p_out = static_cast<T*>(row.p);
  T* ds_out = static_cast<T*>(row.ds);
  int64_t i = 0;
  for (; i < row.keys; i += 16) {
    const F32x16 p = Mul(Load(row.scores + i), inverse);
    F32x16 ds = Mul(Mul(p, Sub(Load(row.dp + i), Set1(row.delta))), scale);
    if (row.keys - i < 16) ds = KeepFirst(ds, row.keys - i, 0.0f);
    Store(p_out + i, p);
    Store(ds_out + i, ds);
  }
  for (; i < row.cols; i += 16) {
    Store(p_out + i, Zero());
    Store(ds_out + i, Zero());
  }
}

// With p the softmax, l its logarithm and H the entropy, for x = logit / T:
// d log_prob / dx_j = [j = target] - p_j and dH / dx_j = -p_j * (l_j + H).
template <typename T>
void LogitsBack(const LogitsBackRow& row) {
  const F32x16 factor = Set1(row.inverse_temperature);
  const F32x16 max = Set1(row.stats.max), log_sum = Set1(row.stats.log_sum);
  const F32x16 g = Set1(row.grad_log_prob), ge = Set1(row.grad_entropy);
  const F32x16 entropy = Set1(row.stats.entropy), inverse = Set1(1.0f / row.stats.sum);
  T* out = static_cast<T*>(row.dlogits);
  for (int64_t i = 0; i < row.cols; i += 16) {
    const int64_t n = row.cols - i;
    F32x16 x = Sub(ScaledLogits(row.logits + i, n, factor), max);
    const F32x16 p = Mul(Exp(x), inverse);
    // Of a masked logit, -inf, p is 0: so is its gradient if the slope is finite.
    x = Max(Set1(kLeastSlopeLogit), x);
    if (n < 16) x = KeepFirst(x, n, 0.0f);
    const F32x16 slope = Fma(ge, Add(Sub(x, log_sum), entropy), g);
    F32x16 gradient = Negate(Mul(p, slope));
    if (row.target >= i && row.target < i + 16 && row.target < row.cols &&
        row.logits[row.target] != -__builtin_inff()) {
      float lanes[16];
      Store(lanes, gradient);
      lanes[row.target - i] += row.grad_log_prob;
      gradient = Load(lanes);
    }
    StoreUpTo(out + i, Mul(gradient, factor), n);
  }
}

}  // namespace
}  // namespace tandem
