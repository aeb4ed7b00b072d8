// The arguments of an AdamW step over flat fp32 arrays, wherever they lie.
#pragma once

#include <cstdint>

#include "common/types/tensor_view.h"

namespace tandem {

// The arrays of one shard; all have `count` elements.
struct AdamWArrays {
  float* master = nullptr;
  const float* gradient = nullptr;
  float* exp_avg = nullptr;
  float* exp_avg_sq = nullptr;
  Bf16* rounded = nullptr;  // the masters' rounding to bf16; null: none is kept
  int64_t count = 0;
};

// g = gradient * gradient_scale; m += (g - m) * weight1; v = v * beta2 + g * g * weight2;
// master = master * decay - step_size * (m / (sqrt(v) / root2 + eps)), in this order.
struct AdamWFactors {
  float gradient_scale = 1, weight1 = 0, beta2 = 0, weight2 = 0;
  float decay = 1, step_size = 0, root2 = 1, eps = 0;
};

}  // namespace tandem
