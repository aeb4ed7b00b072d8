// Masked sums and aggregation against the numbers of the reference implementation.
#include <catch2/catch.hpp>

#include "tests/trainer_worker/losses/loss_golden.h"
#include "trainer_worker/losses/token_losses.h"

namespace tandem {
namespace {

using namespace tandem::testing;

void RequireTensorValues(const at::Tensor& got, const Json& want) {
  REQUIRE(CompareValues(Values(got), ParseTensor(want).values, 1e-5, 5e-5) == "");
}

void CheckAggLoss(const GoldenFamily&, const GoldenCase& c) {
  const GoldenTensor matrix = ParseTensor(c.inputs.at("loss_mat"));
  const at::Tensor loss = at::tensor(matrix.Floats()).requires_grad_(true);
  const at::Tensor mask = at::tensor(ParseTensor(c.inputs.at("loss_mask")).Floats());
  const LossScale scale = ScaleOf(c.options, c.options, static_cast<double>(matrix.shape.at(1)));
  const auto value =
      AggregateLoss(loss, mask, at::tensor(RowsOf(matrix)), matrix.shape.at(0), scale);
  if (c.raises) {
    REQUIRE(value.status().code() == absl::StatusCode::kInvalidArgument);
    return;
  }
  REQUIRE(value.ok());
  RequireTensorValues(*value, c.outputs.at("loss"));
  value->backward();
  RequireTensorValues(loss.grad(), c.outputs.at("grad_loss_mat"));
}

// Flat vectors are all that the losses need; a reduction along an axis is one call per row.
void CheckMaskedSum(const GoldenFamily&, const GoldenCase& c) {
  const at::Tensor values = ToTensor(ParseTensor(c.inputs.at("values")));
  const at::Tensor mask = ToTensor(ParseTensor(c.inputs.at("mask")));
  std::vector<float> got;
  if (c.options.at("axis").is_null()) {
    got = Values(MaskedSum(values, mask));
  } else {
    for (int64_t row = 0; row < values.size(0); ++row) {
      got.push_back(Values(MaskedSum(values[row], mask[row])).at(0));
    }
  }
  REQUIRE(CompareValues(got, ParseTensor(c.outputs.at("value")).values, 1e-5, 5e-5) == "");
}

TEST_CASE("Masked sums and aggregation equal the golden numbers", "[golden][losses]") {
  RunGoldenFamily(ReadGoldenFamily(GoldenDirOrSkip(), "torch_functional"),
                  {{"agg_loss", CheckAggLoss}, {"masked_sum", CheckMaskedSum}});
}

}  // namespace
}  // namespace tandem
