// Upper bounds of the micro-batches of one trainer rank, by which its memory is planned.
#pragma once

#include <cstdint>

namespace tandem {

struct BatchLimits {
  int64_t micro_batch_tokens = 1;  // actor.ppo_max_token_len_per_gpu
  int64_t samples = 1;             // of the rank; 0: not known
  int64_t groups = 1;              // samples of a group share the rows of their prompt
  int64_t prompt_tokens = 1;
  int64_t response_tokens = 1;
  int64_t sequence_tokens = 1;  // prompt and response, rollout.max_model_len
};

}  // namespace tandem
