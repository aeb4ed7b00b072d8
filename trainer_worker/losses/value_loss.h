// The loss of a value function, clipped around the values that the advantages were computed from:
//   L = 1/2 max((V − R)², (clip(V, V_old ± cliprange) − R)²), aggregated as the policy loss is.
// Schulman et al., "Proximal Policy Optimization Algorithms", arXiv 1707.06347; the clipping as in
// Huang et al., "The 37 Implementation Details of Proximal Policy Optimization", 2022, detail 9.
#pragma once

#include <cstdint>

#include <absl/status/statusor.h>

#include "trainer_worker/losses/loss_options.h"
#include "trainer_worker/losses/tensors.h"

namespace tandem {

// [tokens] each; `values` has the gradient.
struct ValueTensors {
  at::Tensor values;
  at::Tensor old_values;
  at::Tensor returns;
  at::Tensor mask;  // float 0 or 1
  at::Tensor rows;  // int64, 0 <= row < num_rows
  int64_t num_rows = 1;
};

struct ValueLossResult {
  at::Tensor loss;              // a scalar, differentiable
  double clipped_fraction = 0;  // of the counted tokens: the clipped side was larger
};

// InvalidArgument: AggregateLoss's.
absl::StatusOr<ValueLossResult> ValueLoss(const ValueTensors& tensors,
                                          double cliprange,
                                          const LossScale& scale);

}  // namespace tandem
