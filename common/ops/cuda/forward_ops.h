// ForwardOps on a GPU: enqueues every op on the context's stream. Matrices, weights (row-major) and
// KV blocks are in device memory; ids, spans and results are in host memory.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "common/device/cuda/cuda_context.h"
#include "common/ops/cuda/adapters.h"
#include "common/ops/cuda/attention/attention.h"
#include "common/ops/cuda/linear/linear.h"
#include "common/ops/cuda/rows/logits.h"
#include "common/ops/forward_ops.h"

namespace tandem {

// FailedPrecondition, with the key and the remedy, for a dtype in which a GPU does not compute.
absl::Status CheckCudaComputeDtype(DType compute_dtype);

// Uses scratch on the device as planned by common/memory/cuda_scratch.h. TokenLogProbs waits for
// the device; neither it nor Sample may be part of a graph, the other ops may.
class CudaForwardOps final : public ForwardOps {
 public:
  // `context` must outlive the ops.
  CudaForwardOps(CudaContext* context, std::shared_ptr<CudaLinear> linear);

  DType compute_dtype() const override { return DType::kBFloat16; }
  WeightFormat weight_format() const override { return WeightFormat::kRowMajor; }
  std::string numerics_class() const override;
  std::string kernel_set() const override;
  const OpCounts& counts() const override { return counts_; }
  // All scratch of the context, including that of backward ops on it.
  int64_t workspace_bytes() const override { return context_->held_bytes(); }

  // A step is a graph, identified by its number of rows and the bound of its spans' segments.
  void BeginStep(const std::vector<AttentionSpan>& spans) override;
  bool EndStep() override { return context_->EndGraph(); }
  int64_t StepRows(int64_t rows) const override;

#define TANDEM_FORWARD_OP(op, name, parameters, arguments) void op parameters override;
#include "common/ops/forward_ops.def"
  void AddRmsNorm(Matrix x, Matrix delta, const void* weight, float eps, Matrix out) override;
  void HeadRmsNorms(Matrix qkv,
                    const AttentionShape& shape,
                    const void* q_weight,
                    const void* k_weight,
                    float eps) override;

 private:
  // Where the scores of some rows are stored; all pointers are to device memory.
  struct Scoring {
    const ScoredRow* rows;
    float* target_logits;  // [rows]; null if no row has a target
    LogitSums* sums;       // [rows, chunks]
    RowScore* scores;
    int64_t stride;        // of the logits: kGroupIds, or all ids if all logits stay in the scratch
    int64_t logits_bytes;  // of that scratch
  };
  // Scores all rows of `hidden` and returns where the logits are.
  LogitsBlock Score(Matrix hidden,
                    const LinearWeight& head,
                    int64_t vocab_limit,
                    const Scoring& scoring);
  void SampleRows(Matrix hidden,
                  const LinearWeight& head,
                  int64_t vocab_limit,
                  const SampleRow* rows,
                  SampledToken* out);

  CudaContext* const context_;
  const std::shared_ptr<CudaLinear> linear_;
  CudaAttention attention_;
  CudaAdapters adapters_;
  OpCounts counts_;
};

}  // namespace tandem
