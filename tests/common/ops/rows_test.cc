#include <algorithm>
#include <cmath>

#include <catch2/catch.hpp>

#include "common/ops/cpu/kernels/isa.h"
#include "tests/common/ops/ops_fixture.h"

namespace tandem {
namespace {
using testing::TestMatrix;
using testing::TestWeight;

double Silu(double x) { return x / (1.0 + std::exp(-x)); }
double Tolerance(DType dtype) { return dtype == DType::kFloat32 ? 1e-6 : 5e-3; }
}  // namespace

TEST_CASE("RmsNorm rounds as HF does: the normalised value, then the product", "[ops][rows]") {
  for (const int64_t cols : {1, 16, 24, 75, 576}) {
    for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
      const auto ops = testing::MakeForward(dtype, 2);
      TestMatrix in = TestMatrix::Random(dtype, 9, cols, 1, 4.0f);
      const TestMatrix weight = TestMatrix::Random(dtype, 1, cols, 2), out(dtype, 9, cols);
      ops->RmsNorm(in.view(), weight.data(), 1e-5f, out.view());
      for (int64_t i = 0; i < 9; ++i) {
        double squares = 0;
        for (int64_t j = 0; j < cols; ++j) squares += std::pow(static_cast<double>(in.At(i, j)), 2);
        const double scale = 1.0 / std::sqrt(squares / static_cast<double>(cols) + 1e-5);
        for (int64_t j = 0; j < cols; ++j) {
          const double exact = static_cast<double>(in.At(i, j)) * scale;
          const double normed =
              dtype == DType::kFloat32
                  ? exact
                  : static_cast<double>(FromBf16(ToBf16(static_cast<float>(exact))));
          const double expected = normed * static_cast<double>(weight.At(0, j));
          REQUIRE(out.At(i, j) == Approx(expected).epsilon(Tolerance(dtype)).margin(1e-7));
        }
      }
      ops->RmsNorm(in.view(), weight.data(), 1e-5f, in.view());
      REQUIRE(in.SameBits(out));
    }
  }
}

TEST_CASE("SiluMul agrees with a double reference and saturates quietly", "[ops][rows]") {
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
    for (const float scale : {1.0f, 20.0f, 300.0f}) {
      TestMatrix in = TestMatrix::Random(dtype, 7, 2 * 37, 1, scale);
      const TestMatrix out(dtype, 7, 37);
      testing::MakeForward(dtype)->SiluMul(in.view(), out.view());
      for (int64_t i = 0; i < 7; ++i) {
        for (int64_t j = 0; j < 37; ++j) {
          const double expected =
              Silu(static_cast<double>(in.At(i, j))) * static_cast<double>(in.At(i, j + 37));
          REQUIRE(out.At(i, j) == Approx(expected).epsilon(Tolerance(dtype)).margin(1e-30));
        }
      }
    }
  }
}

TEST_CASE("Add and Embed are exact", "[ops][rows]") {
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
    const auto ops = testing::MakeForward(dtype, 2);
    const TestWeight table(dtype, 40, 35, 1, 1.0f);
    const std::vector<int32_t> ids = {39, 0, 17, 17, 5, 16, 15};
    const TestMatrix rows(dtype, 7, 35), delta = TestMatrix::Random(dtype, 7, 35, 2);
    ops->Embed(ids.data(), table.view(), rows.view());
    for (int64_t i = 0; i < 7; ++i) {
      REQUIRE(rows.SameRow(i, table.source, ids[static_cast<size_t>(i)]));
    }
    ops->Add(rows.view(), delta.view());
    for (int64_t i = 0; i < 7; ++i) {
      for (int64_t j = 0; j < 35; ++j) {
        const float sum = table.source.At(ids[static_cast<size_t>(i)], j) + delta.At(i, j);
        REQUIRE(rows.At(i, j) == (dtype == DType::kFloat32 ? sum : FromBf16(ToBf16(sum))));
      }
    }
  }
}

TEST_CASE("Rows of the elementwise ops do not depend on their neighbours", "[ops][rows]") {
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
    const TestMatrix in = TestMatrix::Random(dtype, 131, 90, 1, 3.0f);
    const TestMatrix weight = TestMatrix::Random(dtype, 1, 90, 2);
    const TestMatrix normed(dtype, 131, 90), activated(dtype, 131, 45);
    const auto one = testing::MakeForward(dtype, 1), three = testing::MakeForward(dtype, 3);
    one->RmsNorm(in.view(), weight.data(), 1e-5f, normed.view());
    one->SiluMul(in.view(), activated.view());
    for (int64_t m = 1; m <= 130; m += 3) {
      const TestMatrix some(dtype, m, 90), half(dtype, m, 45);
      three->RmsNorm(in.Rows(131 - m, m), weight.data(), 1e-5f, some.view());
      three->SiluMul(in.Rows(131 - m, m), half.view());
      for (int64_t i = 0; i < m; ++i) {
        REQUIRE(some.SameRow(i, normed, 131 - m + i));
        REQUIRE(half.SameRow(i, activated, 131 - m + i));
      }
    }
  }
}

TEST_CASE("The kernels' exp stays within two units in the last place", "[ops][rows]") {
  const auto kernels = ChooseKernels(DType::kFloat32);
  REQUIRE(kernels.ok());
  std::vector<float> x, e;
  for (int i = 0; i <= 1100000; ++i) x.push_back(-8e-5f * static_cast<float>(i));
  e.resize(x.size());
  (*kernels)->exp_logits(x.data(), static_cast<int64_t>(x.size()), 1.0f, 0.0f, e.data());
  double worst = 0;
  bool zeros = true;
  for (size_t i = 0; i < x.size(); ++i) {
    const double exact = std::exp(static_cast<double>(x[i]));
    if (x[i] < -87.0f) {
      zeros = zeros && e[i] == 0.0f;
    } else {
      worst = std::max(worst, std::abs(static_cast<double>(e[i]) - exact) / exact);
    }
  }
  REQUIRE(e[0] == 1.0f);
  REQUIRE(zeros);
  REQUIRE(worst < 2 * 0x1p-24);  // two ulp are at least this much
}

}  // namespace tandem
