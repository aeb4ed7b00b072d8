// AdamW in torch's order of operations (torch.optim.AdamW, single tensor, no amsgrad), and
// clipping.
#pragma once

#include <cstdint>

#include "common/ops/adamw_arrays.h"

namespace tandem {

struct AdamWOptions {
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0.01;
};

// What a step needs besides the arrays (AdamWArrays), every gradient being multiplied by
// `gradient_scale` first. `step` counts from 1. The update is elementwise: the bits do not depend
// on how a tensor is cut into shards.
AdamWFactors FactorsOf(const AdamWOptions& options, double lr, int64_t step, float gradient_scale);

// torch.nn.utils.clip_grad_norm_: factor of the gradients, at most 1.
float ClipFactor(double norm, double max_norm);

}  // namespace tandem
