// BackwardOps on a CPU. Sums over rows are single chains in ascending order: threads share columns
// or weights, never rows of one sum.
#include "common/ops/backward_ops.h"

#include <memory>
#include <utility>
#include <vector>

#include "common/base/check.h"
#include "common/base/status.h"
#include "common/ops/cpu/backward/attention.h"
#include "common/ops/cpu/backward/context.h"
#include "common/ops/cpu/backward/linear.h"
#include "common/ops/cpu/backward/logits.h"
#include "common/ops/cpu/backward/norms.h"
#include "common/ops/cpu/kernels/isa.h"

namespace tandem {
namespace {

class CpuBackwardOps final : public BackwardOps {
 public:
  CpuBackwardOps(DType compute_dtype, const KernelSet& kernels, std::shared_ptr<ThreadPool> pool)
      : context_(compute_dtype, kernels, std::move(pool)) {}

  int64_t workspace_bytes() const override {
    return context_.workspace_bytes() + linear_.workspace_bytes() + norms_.workspace_bytes() +
           logits_.workspace_bytes();
  }

  void Round(FloatMatrix in, Matrix out) override { context_.Round(in, out); }
  void AddRows(FloatMatrix in, const int32_t* rows, FloatMatrix out) override;
  void LinearInput(Matrix dout, const LinearWeight& weight, Matrix din) override {
    linear_.Input(dout, weight, din);
  }
  void LinearWeights(Matrix dout, Matrix in, float* dweight, float* dbias) override {
    linear_.Weights(dout, in, dweight, dbias);
  }
  void AdapterWeights(Matrix dout,
                      Matrix in,
                      const LinearWeight& weight,
                      const LinearAdapterGradients& gradients) override {
    linear_.AdapterWeights(dout, in, weight, gradients);
  }
  void RmsNorm(Matrix in,
               const void* weight,
               float eps,
               Matrix dout,
               FloatMatrix dresidual,
               float* dweight) override {
    norms_.RmsNorm(in, weight, eps, dout, dresidual, dweight);
  }
  void HeadRmsNorms(Matrix in,
                    const AttentionShape& shape,
                    const HeadNorms& norms,
                    Matrix dout,
                    Matrix din) override {
    norms_.HeadRmsNorms(in, shape, norms, dout, din);
  }
  void Attention(Matrix qkv,
                 const AttentionShape& shape,
                 const std::vector<AttentionSpan>& spans,
                 Matrix out,
                 Matrix dout,
                 Matrix dqkv) override {
    attention_.Attention(qkv, shape, spans, out, dout, dqkv);
  }
  void Rope(Matrix dqkv,
            const AttentionShape& shape,
            const RopeTable& rope,
            const std::vector<AttentionSpan>& spans) override {
    attention_.Rope(dqkv, shape, rope, spans);
  }
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
                     float* dhead) override {
    logits_.TokenLogProbs(hidden, head, vocab_limit, targets, temperatures, stats, grad_log_probs,
                          grad_entropy, dhidden, dhead);
  }
  void Embed(const int32_t* ids, FloatMatrix dx, float* dtable) override {
    logits_.Embed(ids, dx, dtable);
  }

 private:
  CpuBackwardContext context_;
  LinearBackward linear_{context_};
  AttentionBackward attention_{context_};
  NormBackward norms_{context_};
  LogitsBackward logits_{context_};
};

void CpuBackwardOps::AddRows(FloatMatrix in, const int32_t* rows, FloatMatrix out) {
  for (int64_t row = 0; row < in.rows; ++row) {
    const float* source = in.data + row * in.stride;
    float* target = out.data + rows[row] * out.stride;
    for (int64_t col = 0; col < in.cols; ++col) target[col] += source[col];
  }
}

void CpuBackwardOps::SiluMul(Matrix gate_up, Matrix dout, Matrix dgate_up) {
  context_.pool->ParallelRows(dout.rows, kRowGrain, [&](int64_t first, int64_t last, int) {
    for (int64_t row = first; row < last; ++row) {
      context_.kernels.silu_mul_back(context_.Row(gate_up, row), context_.Row(dout, row), dout.cols,
                                     context_.Row(dgate_up, row));
    }
  });
}

}  // namespace

absl::StatusOr<std::unique_ptr<BackwardOps>> CreateCpuBackwardOps(
    DType compute_dtype, std::shared_ptr<ThreadPool> pool) {
  TANDEM_CHECK(pool != nullptr, "ops need a thread pool");
  TANDEM_ASSIGN_OR_RETURN(const KernelSet* kernels, ChooseKernels(compute_dtype));
  std::unique_ptr<BackwardOps> ops =
      std::make_unique<CpuBackwardOps>(compute_dtype, *kernels, std::move(pool));
  return ops;
}

}  // namespace tandem
