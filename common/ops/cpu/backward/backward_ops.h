// BackwardOps on a CPU. Sums over rows are single chains in ascending order: threads share columns
// or weights, never rows of one sum.
#pragma once

#include <memory>
#include <vector>

#include "common/ops/backward_ops.h"
#include "common/ops/cpu/kernels/kernel_set.h"
#include "common/ops/cpu/workspace.h"
#include "common/process/threads.h"

namespace tandem {

class CpuBackwardOps final : public BackwardOps {
 public:
  CpuBackwardOps(DType compute_dtype, const KernelSet& kernels, std::shared_ptr<ThreadPool> pool);

  int64_t workspace_bytes() const override;

  void Round(FloatMatrix in, Matrix out) override;
  void AddRows(FloatMatrix in, const int32_t* rows, FloatMatrix out) override;
  void LinearInput(Matrix dout, const LinearWeight& weight, Matrix din) override;
  void LinearWeights(Matrix dout, Matrix in, float* dweight, float* dbias) override;
  void AdapterWeights(Matrix dout,
                      Matrix in,
                      const LinearWeight& weight,
                      const LinearAdapterGradients& gradients) override;
  void RmsNorm(Matrix in,
               const void* weight,
               float eps,
               Matrix dout,
               FloatMatrix dresidual,
               float* dweight) override;
  void HeadRmsNorms(Matrix in,
                    const AttentionShape& shape,
                    const HeadNorms& norms,
                    Matrix dout,
                    Matrix din) override;
  void Attention(Matrix qkv,
                 const AttentionShape& shape,
                 const std::vector<AttentionSpan>& spans,
                 Matrix out,
                 Matrix dout,
                 Matrix dqkv) override;
  void Rope(Matrix dqkv,
            const AttentionShape& shape,
            const RopeTable& rope,
            const std::vector<AttentionSpan>& spans) override;
  void SiluMul(Matrix gate_up, Matrix dout, Matrix dgate_up) override;
  void TokenLogProbs(Matrix hidden,
                     const LinearWeight& head,
                     int64_t vocab_limit,
                     const int32_t* targets,
                     const float* temperatures,
                     const RowStats* stats,
                     const float* grad_log_probs,
                     const float* grad_entropy,
                     Matrix dhidden,
                     float* dhead) override;
  void Embed(const int32_t* ids, FloatMatrix dx, float* dtable) override;

 private:
  struct LogitsArgs;  // the arguments of TokenLogProbs and the state of a block of rows

  std::byte* Row(Matrix matrix, int64_t row, int64_t col = 0) const {
    return static_cast<std::byte*>(matrix.data) + (row * matrix.stride + col) * element_bytes_;
  }
  // Columns of `matrix` as panels, packed by all threads.
  std::byte* PackColumns(Matrix matrix, Workspace& workspace);
  // dweight [dout_cols, in_cols] += the product of two sets of column panels over `rows`.
  void AddWeightProduct(const std::byte* dout_panels,
                        int64_t dout_cols,
                        const std::byte* in_panels,
                        int64_t in_cols,
                        int64_t rows,
                        float* dweight);
  // A packed weight's transpose as panels.
  std::byte* Transposed(const std::byte* packed, int64_t rows, int64_t cols, Workspace& workspace);
  // s dout_i B_i of every part of the adapters, [rows, parts * rank]; zero where there is none.
  float* RankGradient(Matrix dout, const LinearWeight& weight);
  void ScaleRows(float* values, int64_t rows, int64_t cols, float factor);
  // gradient [rank, cols] += dt_iᵀ in, dt [rows, parts * rank].
  void AddDownGradient(
      const LinearAdapter& adapter, int part, const float* dt, Matrix in, float* gradient);
  // LinearInput where adapters drop elements: `call` is the product with the weight alone.
  void KeptInput(Matrix dout, const LinearWeight& weight, GemmCall call, Matrix din);
  void InverseRms(Matrix in, float eps);
  void RmsNormRows(Matrix in, const void* weight, Matrix dout, FloatMatrix dresidual, Matrix din);
  void RmsNormWeights(Matrix in, Matrix dout, float* dweight);
  void LogitsRowBlock(const LogitsArgs& args);
  void LogitsChunk(const LogitsArgs& args, int64_t chunk);

  const DType dtype_;
  const int64_t element_bytes_;
  const KernelSet& kernels_;
  const std::shared_ptr<ThreadPool> pool_;
  std::vector<Workspace> thread_scratch_;  // one per pool thread
  Workspace weight_panels_;                // a weight, transposed
  Workspace in_panels_, dout_panels_;      // operands of a weight gradient
  Workspace adapter_panels_;               // A of adapters, transposed; with dropout as it is
  Workspace rank_rows_, rank_gradient_;    // what lies between A and B, and its gradient
  Workspace wide_b_;                       // B in fp32
  Workspace dropped_;                      // inputs of adapters with dropout, some rows at a time
  Workspace kept_sums_;                    // and, of such rows, the sums of their gradients
  Workspace row_values_;                   // one fp32 per row
  Workspace dlogits_, dhidden_;
};

}  // namespace tandem
