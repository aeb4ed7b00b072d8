// Launchers of the kernels of log-softmax and its gradient (logits.cu, logits_backward.cu). From
// equal logits they give the CPU's bits: chunks, lanes and orders of sums are those of
// cpu/kernels/rows.h.
//
// Logits are fp32 on the device, [rows, ids] with a stride that is a multiple of 4, and contain
// complete vocabulary chunks; ids >= vocab_limit are ignored. Without rows nothing is launched.
#pragma once

#include <algorithm>
#include <cstdint>

#include "common/device/cuda/launch.h"
#include "common/memory/cuda_scratch.h"
#include "common/ops/ops_types.h"

namespace tandem {

// For a row and a chunk, with x = logit / T: max, sum of exp(x - max), sum of exp(x - max) (x -
// max).
struct LogitSums {
  float max, sum, weighted;
};

// A row of the head. Greedy rows have an inverse temperature of 1.
struct ScoredRow {
  float inverse_temperature = 1;
  int32_t target = 0;  // -1: none
};
struct RowScore {
  RowStats stats;
  float log_prob = 0;  // of the target
};

// The logits of chunks [first_chunk, first_chunk + chunks) of some rows.
struct LogitsBlock {
  const float* logits = nullptr;
  int64_t stride = 0;
  int64_t rows = 0;
  int64_t first_chunk = 0;
  int64_t chunks = 0;
  int64_t vocab_limit = 0;
};

// Computes sums[row * all_chunks + chunk] for the block's chunks, and copies the raw logits of
// targets in the block to target_logits[row]. `rows` [block.rows] are on the device.
void LaunchLogitSums(CudaStream stream,
                     const LogitsBlock& block,
                     const ScoredRow* rows,
                     LogitSums* sums,
                     float* target_logits);
// Computes the rows' log-softmax from the sums of all their chunks, in ascending order.
void LaunchRowScores(CudaStream stream,
                     int64_t rows,
                     int64_t vocab_limit,
                     const ScoredRow* scored,
                     const LogitSums* sums,
                     const float* target_logits,
                     RowScore* scores);

// The inputs of the gradient of one row's log-prob and entropy.
struct LogitsGradientRow {
  RowStats stats;
  float inverse_temperature = 1;
  float grad_log_prob = 0;
  float grad_entropy = 0;
  int32_t target = 0;
};
// dlogits [rows, cols] (bf16) = the gradient of the block's logits; zeros from vocab_limit on.
void LaunchLogitsBackward(CudaStream stream,
                          const LogitsBlock& block,
                          const LogitsGradientRow* rows,
                          Matrix dlogits);

}  // namespace tandem
