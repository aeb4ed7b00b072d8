// Masked sums, aggregation and the value loss against the numbers of the reference implementation.
#include <span>

#include <catch2/catch.hpp>

#include "common/types/response_mask.h"
#include "tests/trainer_worker/losses/loss_golden.h"
#include "trainer_worker/losses/token_losses.h"
#include "trainer_worker/losses/value_loss.h"

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

void CheckValueLoss(const GoldenFamily&, const GoldenCase& c) {
  const GoldenTensor predictions = ParseTensor(c.inputs.at("vpreds"));
  ValueTensors tensors{.values = at::tensor(predictions.Floats()).requires_grad_(true),
                       .old_values = at::tensor(ParseTensor(c.inputs.at("values")).Floats()),
                       .returns = at::tensor(ParseTensor(c.inputs.at("returns")).Floats()),
                       .mask = at::tensor(ParseTensor(c.inputs.at("response_mask")).Floats()),
                       .rows = at::tensor(RowsOf(predictions)),
                       .num_rows = predictions.shape.at(0)};
  const LossScale scale =
      ScaleOf(c.options, c.options, static_cast<double>(predictions.shape.at(1)));
  const auto result = ValueLoss(tensors, c.options.at("cliprange_value").get<double>(), scale);
  if (c.raises) {
    REQUIRE(result.status().code() == absl::StatusCode::kInvalidArgument);
    return;
  }
  REQUIRE(result.ok());
  RequireTensorValues(result->loss, c.outputs.at("loss"));
  REQUIRE(IsClose(result->clipped_fraction, ParseTensor(c.outputs.at("vf_clipfrac")).values.at(0),
                  1e-5, 5e-5));
  result->loss.backward();
  RequireTensorValues(tensors.values.grad(), c.outputs.at("grad_vpreds"));
}

void CheckVariance(const GoldenFamily&, const GoldenCase& c) {
  const at::Tensor values = ToTensor(ParseTensor(c.inputs.at("values")));
  const at::Tensor mask = ToTensor(ParseTensor(c.inputs.at("mask")));
  const bool unbiased = c.options.value("unbiased", true);
  const auto got = c.fn == "masked_var"
                       ? MaskedVariance(values, mask, unbiased)
                       : MaskedWhiten(values, mask, c.options.value("shift_mean", true));
  if (c.raises) {
    REQUIRE(got.status().code() == absl::StatusCode::kInvalidArgument);
    return;
  }
  REQUIRE(got.ok());
  RequireTensorValues(*got, c.outputs.at("value"));
}

void CheckResponseMask(const GoldenFamily&, const GoldenCase& c) {
  const GoldenTensor responses = ParseTensor(c.inputs.at("response_id"));
  const Json& end = c.options.at("eos_token");
  const auto ends =
      end.is_array() ? end.get<std::vector<int32_t>>() : std::vector<int32_t>{end.get<int32_t>()};
  std::vector<int32_t> ids;
  for (const int64_t id : responses.Ints()) ids.push_back(static_cast<int32_t>(id));
  const auto width = static_cast<size_t>(responses.shape.at(1));
  std::vector<int64_t> got;
  for (size_t row = 0; row < ids.size(); row += width) {
    const auto mask = ResponseMask(std::span(ids).subspan(row, width), ends);
    got.insert(got.end(), mask.begin(), mask.end());
  }
  REQUIRE(got == ParseTensor(c.outputs.at("mask")).Ints());
}

using Reduction = at::Tensor (*)(const at::Tensor&, const at::Tensor&);

// Flat vectors are all that the losses need; a reduction along an axis is one call per row.
template <Reduction kReduce>
void CheckMasked(const GoldenFamily&, const GoldenCase& c) {
  const at::Tensor values = ToTensor(ParseTensor(c.inputs.at("values")));
  const at::Tensor mask = ToTensor(ParseTensor(c.inputs.at("mask")));
  std::vector<float> got;
  if (c.options.at("axis").is_null()) {
    got = Values(kReduce(values, mask));
  } else {
    for (int64_t row = 0; row < values.size(0); ++row) {
      got.push_back(Values(kReduce(values[row], mask[row])).at(0));
    }
  }
  REQUIRE(CompareValues(got, ParseTensor(c.outputs.at("value")).values, 1e-5, 5e-5) == "");
}

TEST_CASE("Masked sums, aggregation and the value loss equal the golden numbers",
          "[golden][losses]") {
  RunGoldenFamily(ReadGoldenFamily(GoldenDirOrSkip(), "torch_functional"),
                  {{"agg_loss", CheckAggLoss},
                   {"compute_value_loss", CheckValueLoss},
                   {"get_response_mask", CheckResponseMask},
                   {"masked_sum", CheckMasked<MaskedSum>},
                   {"masked_mean", CheckMasked<MaskedMean>},
                   {"masked_var", CheckVariance},
                   {"masked_whiten", CheckVariance}});
}

}  // namespace
}  // namespace tandem
