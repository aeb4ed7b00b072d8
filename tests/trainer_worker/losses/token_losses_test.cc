#include "trainer_worker/losses/token_losses.h"

#include <cmath>
#include <limits>
#include <vector>

#include <catch2/catch.hpp>

#include "trainer_worker/losses/value_loss.h"

namespace tandem {
namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

at::Tensor Vector(const std::vector<float>& values) {
  return at::tensor(at::ArrayRef<float>(values), at::kFloat);
}

TEST_CASE("variance and whitening see nothing outside the mask", "[losses]") {
  const at::Tensor values = Vector({1, kNaN, 3, 8}), mask = Vector({1, 0, 1, 1});
  REQUIRE(MaskedVariance(values, mask, true)->item<float>() == Approx(13));
  REQUIRE(MaskedVariance(values, mask, false)->item<float>() == Approx(26.0 / 3));
  const at::Tensor white = MaskedWhiten(values, mask, true).value();
  REQUIRE(white[3].item<float>() == Approx(4 / std::sqrt(13.0)));
  REQUIRE(MaskedWhiten(values, mask, false).value()[3].item<float>() ==
          Approx(4 + 4 / std::sqrt(13.0)));
  for (const std::vector<float>& few : {std::vector<float>{0, 0, 0, 0}, {0, 0, 0, 1}}) {
    REQUIRE(MaskedVariance(values, Vector(few), true).status().code() ==
            absl::StatusCode::kInvalidArgument);
    REQUIRE(MaskedWhiten(values, Vector(few), true).status().code() ==
            absl::StatusCode::kInvalidArgument);
  }
}

TEST_CASE("the value loss is the larger of the two sides", "[losses]") {
  ValueTensors tensors{.values = Vector({2.0f, 0.25f, -3.0f}).requires_grad_(true),
                       .old_values = Vector({1, 0, 0}),
                       .returns = Vector({3, 1, -4}),
                       .mask = Vector({1, 1, 0}),
                       .rows = at::zeros({3}, at::kLong)};
  const auto result = ValueLoss(tensors, 0.5, {});
  REQUIRE(result.ok());
  // Clipped to 1.5: (1.5 - 3)^2 above (2 - 3)^2, without gradient; the second is within the range.
  REQUIRE(result->loss.item<float>() == Approx(0.5 * (2.25 + 0.5625) / 2));
  REQUIRE(result->clipped_fraction == Approx(0.5));
  result->loss.backward();
  REQUIRE(tensors.values.grad()[0].item<float>() == 0.0f);
  REQUIRE(tensors.values.grad()[1].item<float>() == Approx(-0.375));
  REQUIRE(tensors.values.grad()[2].item<float>() == 0.0f);
}

}  // namespace
}  // namespace tandem
