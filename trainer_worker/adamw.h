// AdamW over flat fp32 arrays, in torch's order of operations (torch.optim.AdamW, single tensor,
// no amsgrad), and the pieces of a step that work on a shard.
#pragma once

#include <cstdint>

#include "common/types/tensor_view.h"

namespace tandem {

struct AdamWOptions {
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0.01;
};

// The arrays of one shard; all have `count` elements.
struct AdamWArrays {
  float* master = nullptr;
  const float* gradient = nullptr;
  float* exp_avg = nullptr;
  float* exp_avg_sq = nullptr;
  int64_t count = 0;
};

// One step with every gradient multiplied by `gradient_scale` first. `step` counts from 1.
// Elementwise: the bits do not depend on how a tensor is cut into shards.
void AdamWStep(const AdamWArrays& arrays,
               const AdamWOptions& options,
               double lr,
               int64_t step,
               float gradient_scale);

// Sum of squares in double, in fixed blocks of ascending order.
double SumOfSquares(const float* values, int64_t count);

// torch.nn.utils.clip_grad_norm_: factor of the gradients, at most 1.
float ClipFactor(double norm, double max_norm);

// Rounds masters to bf16; returns how many results differ from what `copy` held.
int64_t RoundToBf16(const float* master, Bf16* copy, int64_t count);

}  // namespace tandem
