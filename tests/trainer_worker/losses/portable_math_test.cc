#include "trainer_worker/losses/portable_math.h"

#include <cmath>
#include <vector>

#include <catch2/catch.hpp>

namespace tandem {
namespace {

at::Tensor Leaf(const std::vector<float>& values) {
  return at::tensor(at::ArrayRef<float>(values), at::kFloat).requires_grad_(true);
}

}  // namespace

TEST_CASE("PortableExp is exp in double, rounded once, and its own derivative", "[losses]") {
  // More than a vector, so that none of the values is in a tail of its own.
  std::vector<float> values;
  for (int i = 0; i < 39; ++i) values.push_back(0.37f * static_cast<float>(i - 20));
  const at::Tensor x = Leaf(values);
  const at::Tensor y = PortableExp(x);
  y.sum().backward();
  for (int64_t i = 0; i < x.numel(); ++i) {
    const auto expected =
        static_cast<float>(std::exp(static_cast<double>(values[static_cast<size_t>(i)])));
    REQUIRE(y.detach()[i].item<float>() == expected);
    REQUIRE(x.grad()[i].item<float>() == expected);
  }
}

TEST_CASE("FixedSum adds in order, in double, and spreads its gradient", "[losses]") {
  // In float, the small ones would be lost or not depending on the order.
  std::vector<float> values = {1e8f};
  for (int i = 0; i < 20; ++i) values.push_back(0.4f);
  values.push_back(-1e8f);
  const at::Tensor x = Leaf(values);
  const at::Tensor sum = FixedSum(x);
  REQUIRE(sum.dim() == 0);
  REQUIRE(sum.item<float>() == Approx(8.0f).epsilon(1e-6));
  (3 * sum).backward();
  for (int64_t i = 0; i < x.numel(); ++i) REQUIRE(x.grad()[i].item<float>() == 3.0f);
  REQUIRE(FixedSum(at::zeros({0})).item<float>() == 0.0f);
}

TEST_CASE("PortableSigmoid and PortableLog are rounded once and have their own derivatives",
          "[losses]") {
  const std::vector<float> values = {0.125f, 0.7f, 1.0f, 3.5f, 60.0f};
  const at::Tensor x = Leaf(values), z = Leaf(values);
  const at::Tensor sigmoid = PortableSigmoid(x), log = PortableLog(z);
  sigmoid.sum().backward();
  log.sum().backward();
  for (int64_t i = 0; i < x.numel(); ++i) {
    const double value = values[static_cast<size_t>(i)];
    const double gate = 1 / (1 + std::exp(-value));
    REQUIRE(sigmoid.detach()[i].item<float>() == static_cast<float>(gate));
    REQUIRE(x.grad()[i].item<float>() == Approx(gate * (1 - gate)).margin(1e-7));
    REQUIRE(log.detach()[i].item<float>() == static_cast<float>(std::log(value)));
    REQUIRE(z.grad()[i].item<float>() == Approx(1 / value));
  }
}

TEST_CASE("FixedRowSum adds each row in order, in double, wherever its elements lie", "[losses]") {
  const at::Tensor x = Leaf({1e8f, 2, 0.4f, 3, 0.4f, -1e8f});
  const at::Tensor rows = at::tensor({2, 0, 2, 0, 2, 2}, at::kLong);
  const at::Tensor sums = FixedRowSum(x, rows, 3);
  REQUIRE(sums.detach()[0].item<float>() == 5.0f);
  REQUIRE(sums.detach()[1].item<float>() == 0.0f);  // a row without elements
  REQUIRE(sums.detach()[2].item<float>() == Approx(0.8f).epsilon(1e-6));
  (sums * at::tensor({1.0f, 2.0f, 3.0f})).sum().backward();
  const std::vector<float> want = {3, 1, 3, 1, 3, 3};
  for (int64_t i = 0; i < x.numel(); ++i) {
    REQUIRE(x.grad()[i].item<float>() == want[static_cast<size_t>(i)]);
  }
}

}  // namespace tandem
