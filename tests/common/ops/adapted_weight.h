// A weight with adapters beside it, and what tests of its products share.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <vector>

#include <catch2/catch.hpp>

#include "tests/common/ops/ops_fixture.h"

namespace tandem::testing {

// A weight of three parts that end inside of panels, the second without an adapter if `hole`.
struct Adapted {
  Adapted(DType dtype, int64_t n, int64_t k, int64_t adapter_rank, bool bias, bool without_second)
      : weight(dtype, n, k, 5, 0.3f, bias),
        a(dtype, 3 * adapter_rank, k, 6, 0.3f),
        b(dtype, n, adapter_rank, 7, 0.4f),
        hole(without_second),
        rank(adapter_rank) {}
  LinearWeight view() const {
    LinearWeight view = weight.view();
    const int64_t n = view.rows, first = n / 2, second = n / 3;
    view.adapter = {
        .parts = 3,
        .a = a.view().values,
        .b = b.view().values,
        .rank = rank,
        .scaling = 1.7f,
        .part = {{0, first}, {first, hole ? 0 : second}, {first + second, n - first - second}}};
    return view;
  }
  // Of a row of W; -1: it has no adapter.
  int PartOf(int64_t row) const {
    const LinearAdapter adapter = view().adapter;
    for (int i = 0; i < adapter.parts; ++i) {
      if (row >= adapter.part[i].row && row < adapter.part[i].row + adapter.part[i].rows) return i;
    }
    return -1;
  }
  TestWeight weight, a, b;
  bool hole;
  int64_t rank;
};

// Sums of a linear layer before they are rounded: vdpbf16ps or tdpbf16ps in plain C.
inline float Dot(const TestMatrix& x, int64_t row, const TestMatrix& w, int64_t n, bool tiles) {
  float sum = 0;
  const int64_t k = x.cols();
  if (!tiles) {
    for (int64_t i = 0; i < k; i += 2) {
      if (i + 1 < k) sum = std::fma(x.At(row, i + 1), w.At(n, i + 1), sum);
      sum = std::fma(x.At(row, i), w.At(n, i), sum);
    }
    return sum;
  }
  for (int64_t first = 0; first < k; first += 32) {
    float chains[2] = {0, 0};
    for (int64_t i = first; i < std::min(k, first + 32); ++i) {
      chains[i % 2] = std::fma(x.At(row, i), w.At(n, i), chains[i % 2]);
    }
    sum += chains[0] + chains[1];
  }
  return sum;
}

struct Sums {
  explicit Sums(const Adapted& adapted, float start = 0.0f) {
    const LinearWeight view = adapted.view();
    for (int i = 0; i < 3; ++i) {
      a[i].assign(static_cast<size_t>(adapted.rank * view.cols), start);
      b[i].assign(static_cast<size_t>(view.adapter.part[i].rows * adapted.rank), start);
      const bool has = view.adapter.part[i].rows > 0;
      gradients.a[i] = has ? a[i].data() : nullptr;
      gradients.b[i] = has ? b[i].data() : nullptr;
    }
  }
  Sums(const Sums&) = delete;
  std::array<std::vector<float>, 3> a, b;
  LinearAdapterGradients gradients;
};

inline void RequireSlope(
    TestMatrix& x, int64_t i, int64_t j, double gradient, const std::function<double()>& loss) {
  constexpr float kDelta = 0x1p-6f;
  const float value = x.At(i, j);
  x.Set(i, j, value + kDelta);
  const double above = loss();
  x.Set(i, j, value - kDelta);
  const double below = loss();
  x.Set(i, j, value);
  REQUIRE(gradient == Approx((above - below) / (2.0 * double{kDelta})).epsilon(2e-3).margin(2e-3));
}

}  // namespace tandem::testing
