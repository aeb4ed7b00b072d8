// A weight with adapters beside it, for the tests of a GPU's ops, and its formula in plain C.
#pragma once

#include <array>
#include <cmath>
#include <vector>

#include "tests/common/ops/cuda/device_ops.h"

namespace tandem::testing {

// Of three parts that end at any multiples of eight, the second without an adapter if `hole`.
struct AdaptedWeight {
  AdaptedWeight(int64_t n, int64_t k, int64_t adapter_rank, bool bias = false, bool hole = false)
      : weight(DType::kBFloat16, n, k, 5, 0.3f, bias),
        a(DType::kBFloat16, 3 * adapter_rank, k, 6, 0.3f),
        b(DType::kBFloat16, n, adapter_rank, 7, 0.4f),
        rank(adapter_rank) {
    const int64_t first = n / 16 * 8, second = n / 24 * 8;
    parts = {LinearAdapter::Part{0, first},
             {first, hole ? 0 : second},
             {first + second, n - first - second}};
  }
  // As a GPU has it, and as a CPU.
  LinearWeight rows() const {
    return With(RowMajor(weight), RowMajor(a).values, RowMajor(b).values);
  }
  LinearWeight panels() const { return With(weight.view(), a.view().values, b.view().values); }
  // Without the adapters.
  LinearWeight base() const { return RowMajor(weight); }
  // Of a row of W; -1: it has no adapter.
  int PartOf(int64_t row) const {
    for (int i = 0; i < 3; ++i) {
      const LinearAdapter::Part& part = parts[static_cast<size_t>(i)];
      if (row >= part.row && row < part.row + part.rows) return i;
    }
    return -1;
  }

  TestWeight weight, a, b;
  int64_t rank;
  float scaling = 1.7f;
  std::array<LinearAdapter::Part, 3> parts;

 private:
  LinearWeight With(LinearWeight view, const std::byte* of_a, const std::byte* of_b) const {
    view.adapter = {.parts = 3,
                    .a = of_a,
                    .b = of_b,
                    .rank = rank,
                    .scaling = scaling,
                    .part = {parts[0], parts[1], parts[2]}};
    return view;
  }
};

// The sum of x[c] y[c] over columns [first, last): eight chains, of the 32s i, i + 8, ... each, in
// two tensor-core steps of sixteen, as the emulator adds them; the chains in ascending order. A
// step has two pairs of columns of each eight: k goes over all first pairs, then the second ones.
template <typename X, typename Y>
float ChainedDot(int64_t first, int64_t last, const X& x, const Y& y) {
  std::array<float, 8> chains = {};
  for (int64_t at = first; at < last; at += 32) {
    float& chain = chains[static_cast<size_t>((at - first) / 32 % 8)];
    for (int64_t half = 0; half < 2; ++half) {
      float step = 0;
      for (int64_t k = 0; k < 16; ++k) {
        const int64_t col = at + k % 8 / 2 * 8 + half * 4 + k / 8 * 2 + k % 2;
        if (col < last) step += x(col) * y(col);
      }
      chain += step;
    }
  }
  float sum = chains[0];
  for (size_t i = 1; i < 8; ++i) sum += chains[i];
  return sum;
}

// in A_iᵀ of all parts, times `scale`.
inline std::vector<float> PlainRankRows(const AdaptedWeight& adapted,
                                        const TestMatrix& in,
                                        float scale) {
  std::vector<float> t;
  for (int64_t row = 0; row < in.rows(); ++row) {
    for (int64_t k = 0; k < 3 * adapted.rank; ++k) {
      const bool has = adapted.parts[static_cast<size_t>(k / adapted.rank)].rows > 0;
      const float sum = ChainedDot(
          0, has ? in.cols() : 0, [&](int64_t c) { return in.At(row, c); },
          [&](int64_t c) { return adapted.a.source.At(k, c); });
      t.push_back(sum * scale);
    }
  }
  return t;
}

// s dout_i B_i of all parts.
inline std::vector<float> PlainRankGradients(const AdaptedWeight& adapted, const TestMatrix& dout) {
  std::vector<float> dt;
  for (int64_t row = 0; row < dout.rows(); ++row) {
    for (const LinearAdapter::Part& part : adapted.parts) {
      for (int64_t k = 0; k < adapted.rank; ++k) {
        const float sum = ChainedDot(
            part.row, part.row + part.rows, [&](int64_t c) { return dout.At(row, c); },
            [&](int64_t c) { return adapted.b.source.At(c, k); });
        dt.push_back(sum * adapted.scaling);
      }
    }
  }
  return dt;
}

// value + d, rounded to bf16, unless d is below the smallest normal number.
inline float AddedNormal(float value, float d) {
  return std::fabs(d) < 0x1p-126f ? value : FromBf16(ToBf16(value + d));
}

// Gradients of the adapters, which begin with `start`.
struct AdaptedSums {
  explicit AdaptedSums(const AdaptedWeight& adapted, float start = 0.0f) {
    for (size_t i = 0; i < 3; ++i) {
      const int64_t rows = adapted.parts[i].rows;
      a[i].assign(static_cast<size_t>(adapted.rank * adapted.a.source.cols()), start);
      b[i].assign(static_cast<size_t>(rows * adapted.rank), start);
      gradients.a[i] = rows > 0 ? a[i].data() : nullptr;
      gradients.b[i] = rows > 0 ? b[i].data() : nullptr;
    }
  }
  AdaptedSums(const AdaptedSums&) = delete;
  std::array<std::vector<float>, 3> a, b;
  LinearAdapterGradients gradients;
};

}  // namespace tandem::testing
