// Arguments and results of the model's ops. Plain structs only: see kernels/kernel_set.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "common/memory/op_sizes.h"
#include "common/types/tensor_view.h"

namespace tandem {

// log-softmax statistics of a row of logits, x = logit / temperature over ids below vocab_limit.
// The forward pass of the LM head keeps them for backward.
struct RowStats {
  float max = 0;      // of x
  float sum = 0;      // of exp(x - max)
  float log_sum = 0;  // natural logarithm of `sum`
  float entropy = 0;  // in nats
};

// Lower bound of logits (relative to the row's largest) in the entropy's gradient; probabilities at
// the bound are 0.
inline constexpr float kLeastSlopeLogit = -1e30f;

// The arguments of the model ops. All are views: nothing here owns memory.

// A row-major matrix in the compute dtype of the ops that use it (bf16 or fp32).
struct Matrix {
  void* data = nullptr;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t stride = 0;  // elements from one row to the next, at least cols
};

// The same in fp32 whatever the compute dtype: residual gradients, logits.
struct FloatMatrix {
  float* data = nullptr;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t stride = 0;
};

struct AdapterDropout;  // adapter_dropout.h

// Separate adapters of a weight W [N, K]; each belongs to a part of W's rows. In the rows of part i
//   y = x Wᵀ + s (x A_iᵀ) B_iᵀ + b, rounded as docs/reference/numerics.md says.
// With dropout part i uses drop_i(x) instead of x. On a GPU parts begin and end at multiples of 8
// rows.
struct LinearAdapter {
  static constexpr int kParts = 3;
  struct Part {
    int64_t row = 0;     // its first row in W
    int64_t rows = 0;    // 0: it has no adapter
    int64_t module = 0;  // index of the module in the model, which keys its dropout
  };
  int parts = 0;                 // 0: no adapters
  const std::byte* a = nullptr;  // [parts * rank, K] stored as W is: A_i from row i * rank on
  const std::byte* b = nullptr;  // [N, rank] stored as W is: row n belongs to row n of W
  int64_t rank = 0;
  float scaling = 1;
  Part part[kParts];
  const AdapterDropout* dropout = nullptr;  // null: nothing is dropped; on a CPU only
};

// Where the gradients of a LinearAdapter are added: of A_i [rank, K] and B_i [rows, rank], fp32,
// dense; null for a part without an adapter.
struct LinearAdapterGradients {
  float* a[LinearAdapter::kParts] = {};
  float* b[LinearAdapter::kParts] = {};
};

// y = x Wᵀ + b with W [rows, cols] = [N, K] stored as the ops' weight_format() says: in the panels
// of packed_weight.h, or dense row-major.
struct LinearWeight {
  const std::byte* values = nullptr;  // W
  int64_t rows = 0;
  int64_t cols = 0;
  const void* bias = nullptr;  // [rows] in the compute dtype, or null
  LinearAdapter adapter;
};

struct AttentionShape {
  int64_t heads = 0;     // query heads
  int64_t kv_heads = 0;  // divides heads
  int64_t head_dim = 0;  // multiple of 2
  int64_t q_cols() const { return heads * head_dim; }
  int64_t qkv_cols() const { return (heads + 2 * kv_heads) * head_dim; }
};

// Consecutive rows of one sequence. Row first_row + i has absolute position first_position + i;
// `blocks` maps position p to KV block blocks[p / 64] and covers all positions up to the last row.
struct AttentionSpan {
  int64_t first_row = 0;
  int64_t rows = 0;
  int64_t first_position = 0;
  const int32_t* blocks = nullptr;
  // For backward, if first_position > 0: the positions before it are first_position rows that start
  // at this one. They begin an earlier span, which is the same for all spans that name it.
  int64_t prefix_row = 0;
  // Which sequence this is, in the caller's numbering. The ops do not read it; decorators that
  // observe them do.
  uint64_t sequence = 0;
};

// K and V of one layer: block b starts at base + b * KvBlockBytes(shape, dtype). The bytes inside a
// block are private to the ops; their values before the first use do not matter.
struct KvLayer {
  std::byte* base = nullptr;
  int64_t num_blocks = 0;
};

// Bytes of one block (64 tokens, K and V) of one layer.
int64_t KvBlockBytes(const AttentionShape& shape, DType dtype);

// cos and sin, fp32, [max_positions, head_dim / 2] each, computed in double and rounded once.
struct RopeTable {
  std::vector<float> cos, sin;
  int64_t half_dim = 0;
};
// `inverse_frequencies` has head_dim / 2 entries (model_spec's RopeInverseFrequencies).
RopeTable MakeRopeTable(const std::vector<float>& inverse_frequencies, int64_t max_positions);

// The inputs of one sampled token. `uniform` in (0, 1) is RandomUniform52(seed, sample, position).
struct SampleRow {
  float temperature = 1.0f;  // 0: greedy, ties to the lowest id, scored at T = 1
  float top_p = 1.0f;
  int64_t top_k = -1;
  double uniform = 0.5;
};
// 1 / T for the temperature at which a row is scored; 1 for greedy rows.
inline float InverseTemperature(float temperature) {
  return temperature == 0.0f ? 1.0f : 1.0f / temperature;
}
struct SampledToken {
  int32_t token = 0;
  float log_prob = 0.0f;  // log-softmax of logits / T over ids < vocab_limit, never filtered
  float entropy = 0.0f;   // of the same distribution, in nats
};

// The arguments of an AdamW step over flat fp32 arrays, on any device.

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
// master = master * decay - step_size * (m / (sqrt(v) / sqrt_bias_correction2 + eps)), in this
// order.
struct AdamWFactors {
  float gradient_scale = 1, weight1 = 0, beta2 = 0, weight2 = 0;
  float decay = 1, step_size = 0, sqrt_bias_correction2 = 1, eps = 0;
};

}  // namespace tandem
