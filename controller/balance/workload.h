// What a sequence costs to train, so that ranks and micro-batches can be given equal work.
#pragma once

#include <cstdint>

namespace tandem {

// Relative cost of a sequence of `tokens`: 24576 L + L^2, the linear layers and the attention of a
// model of hidden size 4096 (verl utils/seqlen_balancing.py, calculate_workload).
constexpr int64_t Workload(int64_t tokens) { return 24576 * tokens + tokens * tokens; }

}  // namespace tandem
