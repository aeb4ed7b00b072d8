#include "trainer_worker/losses/fixed_math.h"

#include <cmath>
#include <vector>

#include <catch2/catch.hpp>

namespace tandem {
namespace {

at::Tensor Leaf(const std::vector<float>& values) {
  return at::tensor(at::ArrayRef<float>(values), at::kFloat).requires_grad_(true);
}

}  // namespace

TEST_CASE("FixedExp is exp in double, rounded once, and its own derivative", "[losses]") {
  // More than a vector, so that none of the values is in a tail of its own.
  std::vector<float> values;
  for (int i = 0; i < 39; ++i) values.push_back(0.37f * static_cast<float>(i - 20));
  const at::Tensor x = Leaf(values);
  const at::Tensor y = FixedExp(x);
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

}  // namespace tandem
