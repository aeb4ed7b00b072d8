// The forward ops of the model, one implementation per device, and counts of their calls.
#pragma once

#include <array>
#include <cstdint>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include <absl/status/statusor.h>

#include "common/memory/op_sizes.h"
#include "common/ops/ops_types.h"

namespace tandem {

// kEmbed, kRmsNorm, ...: the ops that compute something.
enum class ForwardOp {
#define TANDEM_FORWARD_OP(op, name, parameters, arguments) k##op,
#define TANDEM_UNCOUNTED_FORWARD_OP(op, parameters, arguments)
#include "common/ops/forward_ops.def"
};

inline constexpr const char* kForwardOpNames[] = {
#define TANDEM_FORWARD_OP(op, name, parameters, arguments) name,
#define TANDEM_UNCOUNTED_FORWARD_OP(op, parameters, arguments)
#include "common/ops/forward_ops.def"
};
inline constexpr int kForwardOps = std::size(kForwardOpNames);

// "embed", "rms_norm", ...
inline const char* ForwardOpName(ForwardOp op) { return kForwardOpNames[static_cast<int>(op)]; }

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

  // The ops themselves, each with its contract: forward_ops.def.
#define TANDEM_FORWARD_OP(op, name, parameters, arguments) virtual void op parameters = 0;
#include "common/ops/forward_ops.def"

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
