// The forward ops of the model, one implementation per device, and counts of their calls.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <absl/status/statusor.h>

#include "common/memory/op_sizes.h"
#include "common/ops/ops_types.h"

namespace tandem {

enum class ForwardOp {
  kEmbed,
  kRmsNorm,
  kLinear,
  kAdd,
  kRopeAndStore,
  kAttention,
  kSiluMul,
  kTokenLogProbs,
  kSample,
  kLogits
};
inline constexpr int kForwardOps = 10;

// "embed", "rms_norm", ...
const char* ForwardOpName(ForwardOp op);

// How often each forward op ran and on how many rows. Trainer and rollout count separately, which
// proves that equal numbers were computed twice.
struct OpCounts {
  struct Count {
    int64_t calls = 0;
    int64_t rows = 0;
  };
  std::array<Count, kForwardOps> of = {};

  void Add(ForwardOp op, int64_t rows) {
    Count& count = of[static_cast<size_t>(op)];
    ++count.calls;
    count.rows += rows;
  }
  const Count& at(ForwardOp op) const { return of[static_cast<size_t>(op)]; }
  // "embed 3 (96 rows), rms_norm 12 (...), ..." of the ops that ran.
  std::string Text() const;
};

class CudaContext;
class ThreadPool;

// Used by the rollout's decode and prefill and by the trainer's forward alike
// (docs/reference/numerics.md).
//
// Contract of every op: a row's result is a pure function of that row and the weights. It depends
// neither on the number of rows, the row's index, the other rows, chunking, page placement nor the
// number of threads; the order of every sum depends on (N, K) or absolute positions alone. Values
// that are not finite are an exception: an infinity in V can turn earlier rows that attend in the
// same call into NaN. All accumulation is fp32; results are rounded once, to nearest even, to the
// compute dtype.
//
// Not thread-safe: one engine thread calls it; it spreads the work over the process's pool.
class ForwardOps {
 public:
  virtual ~ForwardOps() = default;

  virtual DType compute_dtype() const = 0;
  virtual WeightFormat weight_format() const = 0;
  // Bits are equal between machines of one class: "cpu-seq-bf16", "cpu-amx32-bf16", "cpu-seq-f32",
  // "cuda-sm90-cublaslt-13.1.1-bf16".
  virtual std::string numerics_class() const = 0;
  // The instruction set of the kernels on this machine, such as "amx" (a name of TANDEM_CPU_ISA).
  virtual std::string kernel_set() const = 0;
  // The calls so far.
  virtual const OpCounts& counts() const = 0;
  // Scratch memory held between calls; it grows with the largest call so far.
  virtual int64_t workspace_bytes() const = 0;

  // CUDA graph capture and replay: the calls from BeginStep to EndStep are one pass of all layers
  // over `spans`, at the same addresses every time. A GPU captures them as a graph and replays the
  // graph of an equal step; a CPU does nothing. Ops with results for the host must not be called in
  // between. EndStep returns false if no work was done: the caller then makes the same calls once
  // more, without BeginStep.
  virtual void BeginStep(const std::vector<AttentionSpan>& /*spans*/) {}
  [[nodiscard]] virtual bool EndStep() { return true; }
  // The number of rows, at least `rows`, to which a step of `rows` spans of one row should be
  // padded, so that steps of similar sizes replay one graph.
  virtual int64_t StepRows(int64_t rows) const { return rows; }

  // out[i] = table row ids[i]. ids are in [0, table.rows).
  virtual void Embed(const int32_t* ids, const LinearWeight& table, Matrix out) = 0;
  // out[i] = in row rows[i]; `rows` [out.rows] are in [0, in.rows). Not counted: nothing is
  // computed.
  virtual void TakeRows(Matrix in, const int32_t* rows, Matrix out) = 0;
  // out = in / sqrt(mean(in²) + eps), rounded, times weight [cols], rounded (the order HF uses).
  // `in` and `out` may be the same matrix.
  virtual void RmsNorm(Matrix in, const void* weight, float eps, Matrix out) = 0;
  // x += delta; out = RmsNorm(x, weight). This default calls Add, then RmsNorm; an implementation
  // that fuses them gives the same bits and counts.
  virtual void AddRmsNorm(Matrix x, Matrix delta, const void* weight, float eps, Matrix out);
  // In-place RmsNorm of every head of q and of k: the first shape.heads heads of qkv use q_weight
  // [head_dim], those of k use k_weight. This default makes one RmsNorm per head; an implementation
  // that fuses them counts the same.
  virtual void HeadRmsNorms(Matrix qkv,
                            const AttentionShape& shape,
                            const void* q_weight,
                            const void* k_weight,
                            float eps);
  // out [M, N] = in [M, K] Wᵀ + b, with the weight's adapters where it has some.
  virtual void Linear(Matrix in, const LinearWeight& weight, Matrix out) = 0;
  // x += delta, elementwise.
  virtual void Add(Matrix x, Matrix delta) = 0;
  // Rotates the q and k columns of qkv [rows, qkv_cols] in place (halves convention, like HF's
  // rotate_half) and stores k and v of every row in its KV block. q is not scaled. A sequence's
  // rows are stored in ascending order, by one span per call: places after a row in its block may
  // be cleared.
  virtual void RopeAndStore(Matrix qkv,
                            const AttentionShape& shape,
                            const RopeTable& rope,
                            const std::vector<AttentionSpan>& spans,
                            KvLayer kv) = 0;
  // Copies whole blocks, in order. Not counted.
  virtual void CopyBlocks(const AttentionShape& shape,
                          const std::vector<BlockCopy>& copies,
                          KvLayer kv) = 0;
  // Causal attention of the rotated q columns of qkv over the positions 0..p of the row's blocks;
  // scores scaled by 1/sqrt(head_dim), softmax in fp32, P rounded to the compute dtype.
  // out [rows, heads * head_dim].
  virtual void Attention(Matrix qkv,
                         const AttentionShape& shape,
                         const std::vector<AttentionSpan>& spans,
                         KvLayer kv,
                         Matrix out) = 0;
  // out [rows, F] = silu(gate) * up, gate = first F columns of gate_up [rows, 2F]. Rounded once, at
  // the end (HF's bf16 modules round silu(gate) as well).
  virtual void SiluMul(Matrix gate_up, Matrix out) = 0;
  // log_probs[i] = log-softmax(logits_i / T_i)[targets[i]] over ids < vocab_limit, fp32; T = 0
  // counts as 1. `stats` [rows], which backward needs and which contain the entropies, may be null.
  // Never holds more logits than 128 rows of 1,024 ids per thread: scratch is 512 KiB per thread
  // and 12 bytes per row and 1,024 ids.
  virtual void TokenLogProbs(Matrix hidden,
                             const LinearWeight& head,
                             int64_t vocab_limit,
                             const int32_t* targets,
                             const float* temperatures,
                             float* log_probs,
                             RowStats* stats) = 0;
  // Draws one token per row by inverse CDF over fixed vocabulary chunks in ascending order; its
  // log-prob and entropy have the bits of TokenLogProbs. `out` [rows] is filled by the device's
  // next Synchronize (on a host at once) and must live until then. Scratch as for TokenLogProbs;
  // with top-k or top-p also the logits of 8 rows at a time and 8 bytes per id and thread.
  virtual void Sample(Matrix hidden,
                      const LinearWeight& head,
                      int64_t vocab_limit,
                      const std::vector<SampleRow>& rows,
                      SampledToken* out) = 0;
  // fp32 logits [rows, vocab rows], for golden tests and debugging.
  virtual void Logits(Matrix hidden, const LinearWeight& head, FloatMatrix out) = 0;
};

// `pool` (common/process/threads.h) is the process's; its other users must not run at the same
// time. kBFloat16 needs at least AVX2 and FMA: FailedPrecondition names the missing feature.
// TANDEM_CPU_ISA (amx, avx512bf16, avx512f, avx2, amx-emulated) forces a kernel set. The amx sets
// are a numerics class of their own, the others give the same bits. kFloat32 is the slow reference
// path.
absl::StatusOr<std::unique_ptr<ForwardOps>> CreateCpuForwardOps(DType compute_dtype,
                                                                std::shared_ptr<ThreadPool> pool);

// Ops on the device of `context` (common/device/cuda/cuda_context.h), which must outlive them.
// Matrices, weights and KV blocks are in device memory, all other arguments and results in host
// memory. Work goes to the context's stream, and CudaContext::Synchronize returns its errors.
// FailedPrecondition unless compute_dtype is kBFloat16.
absl::StatusOr<std::unique_ptr<ForwardOps>> CreateCudaForwardOps(DType compute_dtype,
                                                                 CudaContext* context);

}  // namespace tandem
