// What a user would call instead of our ops: LibTorch on the CPU, with oneDNN below its bf16
// products. Operands are random bf16 unless said otherwise; only the time counts. One argument list
// gives all ways we know, so that a ratio is against the fastest. "eager" is the code of HF
// transformers, "out" the same into tensors that were there before.
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
  // It does only a part of the op's work: shown, but no ratio is against it.
  bool part = false;
};
using Counterparts = std::vector<Counterpart>;

// Threads of all counterparts.
void SetCounterpartThreads(int threads);

// x [m, k] times W [n, k] transposed: "linear" is at::linear, "packed" oneDNN with the weight
// reordered beforehand.
Counterparts LinearCounterparts(int64_t m, int64_t n, int64_t k);
// dout [m, n] times W [n, k]: "mm", and "linear", "packed" with a transposed W made beforehand.
Counterparts LinearInputCounterparts(int64_t m, int64_t n, int64_t k);
// doutᵀ [n, m] times x [m, k]: "mm" rounds to bf16 and adds to nothing; "mm-add" adds it to the
// fp32 gradient, as LinearWeights does.
Counterparts LinearWeightsCounterparts(int64_t m, int64_t n, int64_t k);

// scaled_dot_product_attention of `rows` queries at the end of `context` positions in each of
// `sequences`, causal, from keys and values [sequences, kv_heads, context, head_dim]. As its users
// call it: "sdpa" repeats them for every query head first, as HF transformers does, "gqa" leaves
// that to torch (enable_gqa).
Counterparts AttentionCounterparts(const AttentionShape& shape,
                                   int64_t sequences,
                                   int64_t rows,
                                   int64_t context);
// What could be called instead: "repeated" finds them repeated already, three times the memory; one
// query: "grouped" passes the heads that share keys as rows.
Counterparts AttentionReformulations(const AttentionShape& shape,
                                     int64_t sequences,
                                     int64_t rows,
                                     int64_t context);
// Gradients of q, k, v of whole sequences: "autograd" of the call with repeated heads; its part
// "kernel" leaves out the sum over the heads that share keys.
Counterparts AttentionBackwardCounterparts(const AttentionShape& shape,
                                           int64_t sequences,
                                           int64_t rows);

// [rows, cols]. "rms_norm" is at::rms_norm, which has no fused kernel on a CPU.
Counterparts RmsNormCounterparts(int64_t rows, int64_t cols);
Counterparts RmsNormBackwardCounterparts(int64_t rows, int64_t cols);
// gate_up [rows, 2 * cols]; in backward "direct" is silu_backward and two products.
Counterparts SiluMulCounterparts(int64_t rows, int64_t cols);
Counterparts SiluMulBackwardCounterparts(int64_t rows, int64_t cols);
Counterparts AddCounterparts(int64_t rows, int64_t cols);
// fp32 to bf16.
Counterparts RoundCounterparts(int64_t rows, int64_t cols);
Counterparts EmbedCounterparts(int64_t rows, int64_t vocab, int64_t cols);
// Rows of fp32 added to an fp32 table; "dense" makes a new one.
Counterparts EmbedBackwardCounterparts(int64_t rows, int64_t vocab, int64_t cols);
// The last `rows` of `context` positions rotated, keys and values copied to a cache that was there
// before. "complex" multiplies pairs as complex numbers in fp32, as Meta's Llama does.
Counterparts RopeCounterparts(const AttentionShape& shape,
                              int64_t sequences,
                              int64_t rows,
                              int64_t context);
// The rotation alone, backwards.
Counterparts RopeBackwardCounterparts(const AttentionShape& shape, int64_t sequences, int64_t rows);

// Log-probs of one id per row from hidden [rows, cols] and a bf16 head: log_softmax of "bf16" or
// "fp32" logits. No entropies, unlike ours.
Counterparts LogProbCounterparts(int64_t rows, int64_t vocab, int64_t cols);
// Their gradients for hidden and head (bf16), the logits kept from the forward.
Counterparts LogProbBackwardCounterparts(int64_t rows, int64_t vocab, int64_t cols);
// Forward and backward.
Counterparts LogProbTrainingCounterparts(int64_t rows, int64_t vocab, int64_t cols);
// softmax of "bf16" or "fp32" logits, multinomial. No log-probs, unlike ours.
Counterparts SampleCounterparts(int64_t rows, int64_t vocab, int64_t cols);

// Over `count` fp32 elements: "fused-round" is at::_fused_adamw_ and a rounding to bf16, as ours;
// its part "fused" does not round.
Counterparts AdamWCounterparts(int64_t count);
Counterparts SumOfSquaresCounterparts(int64_t count);

}  // namespace tandem::bench
