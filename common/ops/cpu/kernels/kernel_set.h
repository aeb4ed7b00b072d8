// The kernels of one instruction set and compute dtype: single-threaded functions over rows,
// columns or tasks, which forward_ops and backward_ops spread over threads. All sets of
// one numerics class give the same bits. Plain structs only: this header is compiled into every
// instruction set's file.
//
// Pointers to void are matrices in the compute dtype of the set; strides are in elements.
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/ops/ops_types.h"
#include "common/types/tensor_view.h"

namespace tandem {

// Numerics of a product: C [rows, n] = A [rows, k] B with B in panels of 16 columns
// (packed_weight.h). Sums run over k in ascending words. Class seq: one chain; within a bf16 word
// the odd element comes first, as in vdpbf16ps. Class amx32: blocks of 16 words; the even and the
// odd elements of a block form chains from zero, then acc + (even + odd), as in tdpbf16ps.
//
// AdapterSums is what adapters add to the sums of a product before they are rounded. In the columns
// [first, last) of part i
//   d = (sum over k, ascending, of t[row, i * rank + k] * b[col, k]) * scaling,
// as fused multiply-adds in fp32 from zero, then sum + d; a d below the smallest normal number
// leaves the sum unchanged, including its sign.
struct AdapterSums {
  struct Part {
    int64_t first = 0, last = 0;
  };
  const float* t = nullptr;  // [rows, parts * rank]
  int64_t t_stride = 0;
  const std::byte* b = nullptr;  // in panels, as GemmCall::b
  int64_t panel_bytes = 0;
  int64_t rank = 0;
  float scaling = 1;
  int parts = 0;
  Part part[3];
};

struct GemmCall {
  enum class Output {
    kRounded,     // c in the compute dtype
    kFloat,       // c fp32
    kAccumulate,  // c fp32, sums start from what c holds
  };
  const void* a = nullptr;
  int64_t a_stride = 0;
  // If not 0, `a` is Aᵀ in panels of this size (backward/context.h), zero-padded to complete words.
  int64_t a_panel_bytes = 0;
  const std::byte* b = nullptr;
  int64_t panel_bytes = 0;
  int64_t k = 0;
  int64_t n = 0;
  void* c = nullptr;
  int64_t c_stride = 0;
  const void* bias = nullptr;  // [n] in the compute dtype, added before rounding; or null
  Output output = Output::kRounded;
  const AdapterSums* adapters = nullptr;  // only with kRounded
  // B is small but part of something larger than any cache, so it comes from memory.
  bool b_is_cold = false;
};

struct AttentionCall {
  const void* qkv = nullptr;
  int64_t qkv_stride = 0;
  void* out = nullptr;
  int64_t out_stride = 0;
  int64_t heads = 0, kv_heads = 0, head_dim = 0;
  const std::byte* kv = nullptr;
  int64_t kv_block_bytes = 0;
  float scale = 1.0f;
};

// Consecutive rows of one sequence.
struct AttentionRows {
  int64_t first_row = 0;
  int64_t rows = 0;
  int64_t first_position = 0;
  const int32_t* blocks = nullptr;
};

// Rows of `count` sequences and one KV head, with all query heads that share it. The sequences have
// their first `shared_tiles` blocks in common, which precede the block of the first of all
// positions; for a single sequence, all blocks may count as shared.
struct AttentionTask {
  const AttentionRows* rows = nullptr;
  int64_t count = 0;
  int64_t shared_tiles = 0;
  int64_t kv_head = 0;
};

// log-softmax statistics of a chunk of the vocabulary: max, sum of exp(x - max), and sum of exp(x -
// max) * (x - max), x = logit * (1 / temperature).
struct ChunkStats {
  float max = 0;
  float sum = 0;
  float weighted = 0;
};

struct RmsNormBackRow {
  const void* in = nullptr;
  const void* weight = nullptr;
  float inverse_rms = 0;
  const void* dout = nullptr;
  float* dresidual = nullptr;  // += dx, or null:
  void* din = nullptr;         // = dx rounded; may be dout
};

struct RmsNormWeightCall {
  const void* in = nullptr;
  int64_t in_stride = 0;
  const void* dout = nullptr;
  int64_t dout_stride = 0;
  const float* inverse_rms = nullptr;
  int64_t rows = 0;
  float* dweight = nullptr;
};

struct RowSumCall {
  const void* x = nullptr;
  int64_t x_stride = 0;
  int64_t rows = 0;
  const int32_t* ids = nullptr;
  float* sums = nullptr;
  int64_t sums_stride = 0;
};

// One query: computes P and dS from scores (unscaled) and dp over `keys` keys, rounded, with zeros
// up to `cols`. `delta` is dout · out.
struct SoftmaxBackRow {
  float* scores = nullptr;  // overwritten
  const float* dp = nullptr;
  float scale = 1.0f;
  float delta = 0;
  int64_t keys = 0;
  int64_t cols = 0;
  void* p = nullptr;
  void* ds = nullptr;
};

// out [i, cols] = (its old value if `add`) + sum over j, ascending, of x(i, j) * y[j, cols], as one
// chain of fused multiply-adds in fp32; without `add`, times `scale`. One of x and y is fp32, the
// other has the compute dtype.
struct RankProductCall {
  const void* x = nullptr;
  int64_t x_i = 0, x_j = 0;  // elements from one i, one j to the next
  const void* y = nullptr;
  int64_t y_stride = 0;
  int64_t terms = 0;  // j
  int64_t cols = 0;
  float* out = nullptr;
  int64_t out_stride = 0;
  float scale = 1.0f;
  bool add = false;
};

// Converts a chunk of a row's logits to the gradient of grad_log_prob * log_prob + grad_entropy *
// entropy, rounded. `target` is the target's index inside the chunk, or outside [0, cols).
struct LogitsBackRow {
  const float* logits = nullptr;
  int64_t cols = 0;
  int64_t target = -1;
  float inverse_temperature = 1.0f;
  RowStats stats;
  float grad_log_prob = 0;
  float grad_entropy = 0;
  void* dlogits = nullptr;
};

// How a product is split into tasks, which affects speed only: in complete units of rows and
// panels, so many that a task's parts of A and B stay in L2 together.
struct GemmCut {
  int64_t a_elements = 1;
  int64_t b_elements = 1;
  int64_t min_rows = 1;  // with fewer rows, reading B is not worth it
  int64_t row_unit = 1;
  int64_t min_panels = 1;  // with fewer panels, register blocks are narrow
  int64_t panel_unit = 1;
};

struct KernelSet {
  const char* name = "";
  const char* numerics = "";  // "seq" or "amx32"
  GemmCut gemm_cut;
  // Rows [row0, row1) and panels [panel0, panel1) of a product; row0 a multiple of 16 if A is in
  // panels.
  void (*gemm)(const GemmCall&, int64_t row0, int64_t row1, int64_t panel0, int64_t panel1);

  // One row per call.
  void (*rms_norm)(const void* in, const void* weight, float eps, int64_t cols, void* out);
  void (*add)(void* x, const void* delta, int64_t cols);
  void (*silu_mul)(const void* gate_up, int64_t cols, void* out);
  // One head in place; cos and sin have head_dim / 2 entries.
  void (*rope)(void* head, const float* cos, const float* sin, int64_t half_dim);
  // Stores one token's k and v head in slot `token` of this KV head's part of its block.
  void (*store_kv)(
      const void* k, const void* v, int64_t head_dim, int64_t token, std::byte* kv_head);
  // The bytes of scratch that a task needs, and the task itself.
  int64_t (*attention_scratch)(const AttentionCall&, const AttentionTask&);
  void (*attention)(const AttentionCall&, const AttentionTask&, std::byte* scratch);

  // Temperatures are passed as their inverses: 1 / T, rounded.
  void (*chunk_stats)(const float* logits, int64_t n, float inverse_temperature, ChunkStats* out);
  void (*combine_chunks)(const ChunkStats* chunks, int64_t n, RowStats* out);
  // out[i] = exp(logits[i] / T - max)
  void (*exp_logits)(
      const float* logits, int64_t n, float inverse_temperature, float max, float* out);

  // Backward kernels: for one row, or for all rows of a range of columns.
  void (*round)(const float* in, int64_t cols, void* out);
  float (*inverse_rms)(const void* in, float eps, int64_t cols);
  // dx of out = in * inverse_rms * weight.
  void (*rms_norm_back)(const RmsNormBackRow&, int64_t cols);
  // dweight[col0, col1) += the sum over rows, ascending, of dout * in * inverse_rms[row].
  void (*rms_norm_weight)(const RmsNormWeightCall&, int64_t col0, int64_t col1);
  void (*silu_mul_back)(const void* gate_up, const void* dout, int64_t cols, void* dgate_up);
  void (*rope_back)(void* head, const float* cos, const float* sin, int64_t half_dim);
  // sums[col0, col1) += rows of x, ascending; ids pick the row of `sums`, or null: row 0.
  void (*add_rows)(const RowSumCall&, int64_t col0, int64_t col1);
  void (*add_float_rows)(const RowSumCall&, int64_t col0, int64_t col1);
  float (*dot)(const void* a, const void* b, int64_t cols);
  void (*softmax_back)(const SoftmaxBackRow&);
  void (*logits_back)(const LogitsBackRow&);
  // Computes rows [i0, i1) of a product with an adapter's matrix: y is fp32, or x is.
  void (*rank_product)(const RankProductCall&, int64_t i0, int64_t i1);
  void (*rank_product_of_floats)(const RankProductCall&, int64_t i0, int64_t i1);
};

// Sets for kBFloat16 and kFloat32 of each instruction set. Call only on machines that support it.
struct KernelSets {
  KernelSet bf16;
  KernelSet f32;
};
const KernelSets& KernelsAmx();
const KernelSets& KernelsAmxEmulated();  // AVX-512F only
const KernelSets& KernelsAvx512Bf16();
const KernelSets& KernelsAvx512();
const KernelSets& KernelsAvx2();

// AdamW (common/ops/cpu/adamw.h) in one instruction set. `update` and `round` return how many
// elements of `rounded` changed. `lane_squares` sums squares in double for each block of
// kSquaresBlock values, in eight running sums: of values i, i + 8, ...
struct AdamWKernels {
  const char* name;
  int64_t (*update)(const AdamWArrays& arrays, const AdamWFactors& factors);
  int64_t (*round)(const float* values, Bf16* rounded, int64_t count);
  void (*lane_squares)(const float* values, int64_t count, double* sums);
};
inline constexpr int64_t kSquaresBlock = 4096;

extern const AdamWKernels kAdamWAvx512, kAdamWAvx2, kAdamWBaseline;

}  // namespace tandem
