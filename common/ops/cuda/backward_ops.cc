#include "common/ops/cuda/backward_ops.h"

#include <algorithm>
#include <utility>

#include "common/base/check.h"
#include "common/base/numeric.h"
#include "common/base/status.h"
#include "common/memory/cuda_scratch.h"
#include "common/ops/cuda/forward_ops.h"

namespace tandem {
CudaBackwardOps::CudaBackwardOps(CudaContext* context, std::shared_ptr<CudaLinear> linear)
    : context_(context), linear_(std::move(linear)), attention_(context), adapters_(context) {}

void CudaBackwardOps::Round(FloatMatrix in, Matrix out) {
  if (context_->launching()) LaunchRound(context_->stream(), in, out);
}

void CudaBackwardOps::AddRows(FloatMatrix in, const int32_t* rows, FloatMatrix out) {
  const RowRuns grouped = GroupRows(rows, in.rows);
  const RowRun* const runs = context_->Upload(grouped.runs);
  const int32_t* const order = context_->Upload(grouped.order);
  if (!context_->launching()) return;
  LaunchAddRowRuns(context_->stream(), runs, static_cast<int64_t>(grouped.runs.size()), order, in,
                   out.data, out.stride);
}

void CudaBackwardOps::Embed(const int32_t* ids, FloatMatrix dx, float* dtable) {
  AddRows(dx, ids, {dtable, 0, dx.cols, dx.cols});
}

void CudaBackwardOps::LinearInput(Matrix dout, const LinearWeight& weight, Matrix din) {
  TANDEM_CHECK(dout.cols == weight.rows && din.cols == weight.cols && dout.rows == din.rows,
               "shapes of LinearInput do not match");
  linear_->Input(dout, weight, din);
  adapters_.AddInput(dout, weight, din);
}

void CudaBackwardOps::AdapterWeights(Matrix dout,
                                     Matrix in,
                                     const LinearWeight& weight,
                                     const LinearAdapterGradients& gradients) {
  TANDEM_CHECK(dout.cols == weight.rows && in.cols == weight.cols && dout.rows == in.rows,
               "shapes of AdapterWeights do not match");
  adapters_.AddWeights(dout, in, weight, gradients);
}

void CudaBackwardOps::LinearWeights(Matrix dout, Matrix in, float* dweight, float* dbias) {
  TANDEM_CHECK(dout.rows == in.rows, "shapes of LinearWeights do not match");
  if (dweight == nullptr) return;
  linear_->Weights(dout, in, dweight, dbias);
}

void CudaBackwardOps::Norm(const NormRows& norm,
                           Matrix in,
                           Matrix dout,
                           const NormGradients& gradients) {
  TANDEM_CHECK(norm.cols <= kWidestRow, "a row is wider than the norm's kernels take");
  const int64_t heads = norm.rows * norm.heads;
  auto* const inverse = reinterpret_cast<float*>(context_->Scratch(
      kNormSlot,
      NormScratchBytes(norm.rows, norm.first_heads, norm.heads - norm.first_heads, norm.cols)));
  if (!context_->launching()) return;
  LaunchRmsNormBackward(context_->stream(), norm, {inverse, inverse + heads}, in, dout, gradients);
}

void CudaBackwardOps::RmsNorm(
    Matrix in, const void* weight, float eps, Matrix dout, FloatMatrix dresidual, float* dweight) {
  Norm({.rows = in.rows, .cols = in.cols, .first = weight, .eps = eps}, in, dout,
       {.dresidual = dresidual, .dfirst = dweight});
}

void CudaBackwardOps::HeadRmsNorms(
    Matrix in, const AttentionShape& shape, const HeadNorms& norms, Matrix dout, Matrix din) {
  Norm({.rows = in.rows,
        .heads = shape.heads + shape.kv_heads,
        .first_heads = shape.heads,
        .cols = shape.head_dim,
        .first = norms.q_weight,
        .second = norms.k_weight,
        .eps = norms.eps},
       in, dout, {.din = din, .dfirst = norms.dq_weight, .dsecond = norms.dk_weight});
}

void CudaBackwardOps::Attention(Matrix qkv,
                                const AttentionShape& shape,
                                const std::vector<AttentionSpan>& spans,
                                Matrix out,
                                Matrix dout,
                                Matrix dqkv) {
  attention_.Backward(qkv, shape, spans, out, dout, dqkv);
}

void CudaBackwardOps::Rope(Matrix dqkv,
                           const AttentionShape& shape,
                           const RopeTable& rope,
                           const std::vector<AttentionSpan>& spans) {
  attention_.Rope(dqkv, shape, rope, spans);
}

void CudaBackwardOps::SiluMul(Matrix gate_up, Matrix dout, Matrix dgate_up) {
  if (context_->launching()) LaunchSiluMulBackward(context_->stream(), gate_up, dout, dgate_up);
}

// dlogits [rows, the ids of `group` below vocab_limit], padded with zeros to the next multiple of
// eight.
void CudaBackwardOps::LogitsGradients(Matrix hidden,
                                      const LinearWeight& head,
                                      int64_t vocab_limit,
                                      const HeadGroup& group,
                                      const LogitsGradientRow* rows,
                                      Matrix dlogits) {
  auto* const logits = reinterpret_cast<float*>(
      context_->Scratch(kLogitsSlot, HeadBackwardScratch(hidden.rows, head.cols).logits));
  linear_->Logits(hidden, head, group.first_id, group.ids, logits, kGroupIds);
  if (!context_->launching()) return;
  dlogits.cols = RoundUp(dlogits.cols, 8);
  LaunchLogitsBackward(context_->stream(),
                       {.logits = logits,
                        .stride = kGroupIds,
                        .rows = hidden.rows,
                        .first_chunk = group.first_chunk,
                        .chunks = group.chunks,
                        .vocab_limit = vocab_limit},
                       rows, dlogits);
}

void CudaBackwardOps::HeadGradients(Matrix hidden,
                                    const LinearWeight& head,
                                    int64_t vocab_limit,
                                    const LogitsGradientRow* rows,
                                    Matrix dhidden,
                                    float* dhead) {
  const HeadScratch needs = HeadBackwardScratch(hidden.rows, head.cols);
  void* const scratch = context_->Scratch(kDlogitsSlot, needs.dlogits);
  const FloatMatrix sums = {
      reinterpret_cast<float*>(context_->Scratch(kHeadSumsSlot, needs.dhidden)), hidden.rows,
      head.cols, head.cols};
  context_->Zero(sums.data, needs.dhidden);
  for (int64_t i = 0; i < HeadGroups(vocab_limit); ++i) {
    const HeadGroup group = HeadGroupAt(i, head.rows, vocab_limit);
    const int64_t ids = std::min(kGroupIds, vocab_limit - group.first_id);
    const Matrix dlogits = {scratch, hidden.rows, ids, kGroupIds};
    LogitsGradients(hidden, head, vocab_limit, group, rows, dlogits);
    LinearWeight part = head;
    part.values += group.first_id * head.cols * 2;
    part.rows = ids;
    linear_->AddInput(dlogits, part, sums);
    if (dhead == nullptr) continue;
    linear_->Weights(dlogits, hidden, dhead + group.first_id * head.cols, nullptr);
  }
  Round(sums, dhidden);
}

void CudaBackwardOps::TokenLogProbs(Matrix hidden,
                                    const LinearWeight& head,
                                    int64_t vocab_limit,
                                    const int32_t* targets,
                                    const float* temperatures,
                                    const RowStats* stats,
                                    const float* grad_log_probs,
                                    const float* grad_entropy,
                                    Matrix dhidden,
                                    float* dhead) {
  TANDEM_CHECK(vocab_limit >= 1 && vocab_limit <= head.rows, "vocab_limit outside the head");
  TANDEM_CHECK(hidden.cols == head.cols && dhidden.cols == head.cols,
               "shapes of TokenLogProbs do not match");
  TANDEM_CHECK(head.bias == nullptr, "a head has no bias on a GPU");
  std::vector<LogitsGradientRow> rows(static_cast<size_t>(hidden.rows));
  for (size_t i = 0; i < rows.size(); ++i) {
    rows[i] = {.stats = stats[i],
               .inverse_temperature = InverseTemperature(temperatures[i]),
               .grad_log_prob = grad_log_probs[i],
               .grad_entropy = grad_entropy == nullptr ? 0.0f : grad_entropy[i],
               .target = targets[i]};
  }
  const LogitsGradientRow* const uploaded = context_->Upload(rows);
  for (int64_t first = 0; first < hidden.rows; first += kHeadBackwardRows) {
    const int64_t count = std::min(kHeadBackwardRows, hidden.rows - first);
    HeadGradients(HiddenRows(hidden, first, count), head, vocab_limit, uploaded + first,
                  HiddenRows(dhidden, first, count), dhead);
  }
}

absl::StatusOr<std::unique_ptr<BackwardOps>> CreateCudaBackwardOps(DType compute_dtype,
                                                                   CudaContext* context) {
  TANDEM_RETURN_IF_ERROR(CheckCudaComputeDtype(compute_dtype));
  TANDEM_ASSIGN_OR_RETURN(std::unique_ptr<CudaLinear> linear, CudaLinear::Create(context));
  std::unique_ptr<BackwardOps> ops = std::make_unique<CudaBackwardOps>(context, std::move(linear));
  return ops;
}

}  // namespace tandem
