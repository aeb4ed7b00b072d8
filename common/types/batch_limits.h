// What bounds the micro-batches of one trainer rank; memory for them is planned and held by it.
#pragma once

#include <cstdint>

namespace tandem {

struct BatchLimits {
  int64_t micro_batch_tokens = 1;  // actor.ppo_max_token_len_per_gpu
  int64_t samples = 1;             // that the rank may have; 0: not known
  int64_t groups = 1;              // of samples with one prompt, which has its rows once
  int64_t prompt_tokens = 1;
  int64_t response_tokens = 1;
  int64_t sequence_tokens = 1;  // prompt and response, rollout.max_model_len
};

}  // namespace tandem
