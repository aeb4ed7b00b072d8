// What a user would call instead of our ops: LibTorch on the CPU, with oneDNN below its bf16
// products. Operands are random; only the time counts.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "common/ops/ops_types.h"

namespace tandem::bench {

struct Counterpart {
  std::string name;
  std::function<void()> run;
};

// Threads of all counterparts.
void SetCounterpartThreads(int threads);

// x [m, k] times W [n, k] transposed, bf16: "linear" is at::linear, "packed" oneDNN with the weight
// reordered beforehand.
std::vector<Counterpart> LinearCounterparts(int64_t m, int64_t n, int64_t k);

// scaled_dot_product_attention of `rows` queries at the end of `context` positions in each of
// `sequences`, causal. "sdpa" has keys and values repeated beforehand for every query head, "gqa"
// leaves that to torch. One query: "grouped" passes the heads that share keys as rows.
std::vector<Counterpart> AttentionCounterparts(const AttentionShape& shape,
                                               int64_t sequences,
                                               int64_t rows,
                                               int64_t context);

}  // namespace tandem::bench
