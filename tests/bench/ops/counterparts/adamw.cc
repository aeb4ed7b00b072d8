#include <ATen/ops/_fused_adamw.h>

#include "tests/bench/ops/counterparts/operands.h"

namespace tandem::bench {

Counterparts AdamWCounterparts(int64_t count) {
  const std::vector<at::Tensor> master = {Random({count}, at::kFloat)};
  const std::vector<at::Tensor> gradient = {Random({count}, at::kFloat)};
  const std::vector<at::Tensor> exp_avg = {at::zeros({count})}, exp_avg_sq = {at::zeros({count})};
  const std::vector<at::Tensor> step = {at::ones({})};
  const at::Tensor rounded = at::zeros({count}, at::kBFloat16);
  const auto update = [=] {
    at::_fused_adamw_(master, gradient, exp_avg, exp_avg_sq, {}, step, 1e-5, 0.9, 0.999, 0.01, 1e-8,
                      /*amsgrad=*/false, /*maximize=*/false);
  };
  return {PartOf(Forward("fused", update)), Forward("fused-round", [=] {
            update();
            rounded.copy_(master[0]);
          })};
}

Counterparts SumOfSquaresCounterparts(int64_t count) {
  const at::Tensor values = Random({count}, at::kFloat);
  return {Forward("norm", [=] { at::linalg_vector_norm(values); }),
          Forward("dot", [=] { values.dot(values); })};
}

}  // namespace tandem::bench
