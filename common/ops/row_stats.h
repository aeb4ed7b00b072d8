// log-softmax statistics of a row of logits, x = logit / temperature over the ids that count: what
// the forward of the LM head leaves for its backward. A plain struct: see cpu/kernel_set.h.
#pragma once

namespace tandem {

struct RowStats {
  float max = 0;      // of x
  float sum = 0;      // of exp(x - max)
  float log_sum = 0;  // natural logarithm of `sum`
  float entropy = 0;  // in nats
};

}  // namespace tandem
