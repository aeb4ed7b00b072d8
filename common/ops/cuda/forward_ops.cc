#include "common/ops/cuda/forward_ops.h"

#include <utility>

#include <fmt/format.h>

#include "common/base/check.h"
#include "common/base/status_macros.h"
#include "common/memory/cuda_scratch.h"
#include "common/memory/product_rows.h"
#include "common/ops/cuda/rows.h"

namespace tandem {

CudaForwardOps::CudaForwardOps(CudaContext* context, std::shared_ptr<CudaLinear> linear)
    : context_(context), linear_(std::move(linear)), attention_(context), adapters_(context) {}

std::string CudaForwardOps::numerics_class() const {
  return fmt::format("cuda-{}-{}-bf16", kernel_set(), linear_->numerics());
}

std::string CudaForwardOps::kernel_set() const {
  return fmt::format("sm{}{}", context_->info().compute_major, context_->info().compute_minor);
}

void CudaForwardOps::BeginStep(const std::vector<AttentionSpan>& spans) {
  const auto rows = static_cast<uint64_t>(spans.size());
  context_->BeginGraph(rows << 32 | static_cast<uint64_t>(AttentionSegmentBound(spans)));
}

int64_t CudaForwardOps::StepRows(int64_t rows) const { return CudaDecodeRows(rows); }

void CudaForwardOps::Embed(const int32_t* ids, const LinearWeight& table, Matrix out) {
  counts_.Add(ForwardOp::kEmbed, out.rows);
  for (int64_t row = 0; row < out.rows; ++row) {
    TANDEM_CHECK(ids[row] >= 0 && ids[row] < table.rows, "token id outside the embedding");
  }
  TakeRows({const_cast<std::byte*>(table.packed), table.rows, table.cols, table.cols}, ids, out);
}

void CudaForwardOps::TakeRows(Matrix in, const int32_t* rows, Matrix out) {
  const void* const uploaded = context_->Upload(rows, out.rows * 4);
  if (!context_->launching()) return;
  LaunchTakeRows(context_->stream(), in, static_cast<const int32_t*>(uploaded), out);
}

void CudaForwardOps::RmsNorm(Matrix in, const void* weight, float eps, Matrix out) {
  counts_.Add(ForwardOp::kRmsNorm, in.rows);
  TANDEM_CHECK(in.cols <= kWidestRow, "a row is wider than the norm's kernels take");
  if (!context_->launching()) return;
  LaunchRmsNorm(context_->stream(), {.rows = in.rows, .cols = in.cols, .first = weight, .eps = eps},
                in, out);
}

void CudaForwardOps::AddRmsNorm(Matrix x, Matrix delta, const void* weight, float eps, Matrix out) {
  counts_.Add(ForwardOp::kAdd, x.rows);
  counts_.Add(ForwardOp::kRmsNorm, x.rows);
  TANDEM_CHECK(x.cols <= kWidestRow, "a row is wider than the norm's kernels take");
  if (!context_->launching()) return;
  LaunchAddRmsNorm(context_->stream(),
                   {.rows = x.rows, .cols = x.cols, .first = weight, .eps = eps}, x, delta, out);
}

void CudaForwardOps::HeadRmsNorms(Matrix qkv,
                                  const AttentionShape& shape,
                                  const void* q_weight,
                                  const void* k_weight,
                                  float eps) {
  const int64_t heads = shape.heads + shape.kv_heads;
  for (int64_t head = 0; head < heads; ++head) counts_.Add(ForwardOp::kRmsNorm, qkv.rows);
  if (!context_->launching()) return;
  LaunchRmsNorm(context_->stream(),
                {.rows = qkv.rows,
                 .heads = heads,
                 .first_heads = shape.heads,
                 .cols = shape.head_dim,
                 .first = q_weight,
                 .second = k_weight,
                 .eps = eps},
                qkv, qkv);
}

void CudaForwardOps::Linear(Matrix in, const LinearWeight& weight, Matrix out) {
  counts_.Add(ForwardOp::kLinear, in.rows);
  TANDEM_CHECK(in.cols == weight.cols && out.cols == weight.rows && in.rows == out.rows,
               "shapes of Linear do not match");
  linear_->Forward(in, weight, out);
  adapters_.AddOutput(in, weight, out);
}

void CudaForwardOps::Add(Matrix x, Matrix delta) {
  counts_.Add(ForwardOp::kAdd, x.rows);
  if (context_->launching()) LaunchAdd(context_->stream(), x, delta);
}

void CudaForwardOps::SiluMul(Matrix gate_up, Matrix out) {
  counts_.Add(ForwardOp::kSiluMul, out.rows);
  if (context_->launching()) LaunchSiluMul(context_->stream(), gate_up, out);
}

void CudaForwardOps::RopeAndStore(Matrix qkv,
                                  const AttentionShape& shape,
                                  const RopeTable& rope,
                                  const std::vector<AttentionSpan>& spans,
                                  KvLayer kv) {
  counts_.Add(ForwardOp::kRopeAndStore, qkv.rows);
  attention_.RopeAndStore(qkv, shape, rope, spans, kv);
}

void CudaForwardOps::CopyBlocks(const AttentionShape& shape,
                                const std::vector<BlockCopy>& copies,
                                KvLayer kv) {
  const int64_t bytes = KvBlockBytes(shape, compute_dtype());
  for (const BlockCopy& copy : copies) {
    context_->Copy(kv.base + copy.to * bytes, kv.base + copy.from * bytes, bytes);
  }
}

void CudaForwardOps::Attention(Matrix qkv,
                               const AttentionShape& shape,
                               const std::vector<AttentionSpan>& spans,
                               KvLayer kv,
                               Matrix out) {
  counts_.Add(ForwardOp::kAttention, qkv.rows);
  attention_.Forward(qkv, shape, spans, kv, out);
}

absl::StatusOr<std::unique_ptr<ForwardOps>> CreateCudaForwardOps(DType compute_dtype,
                                                                 CudaContext* context) {
  TANDEM_RETURN_IF_ERROR(CheckCudaComputeDtype(compute_dtype));
  TANDEM_ASSIGN_OR_RETURN(std::unique_ptr<CudaLinear> linear, CudaLinear::Create(context));
  std::unique_ptr<ForwardOps> ops = std::make_unique<CudaForwardOps>(context, std::move(linear));
  return ops;
}

absl::Status CheckCudaComputeDtype(DType compute_dtype) {
  if (compute_dtype == DType::kBFloat16) return absl::OkStatus();
  return FailedPrecondition(
      "model.compute_dtype is {}, and a GPU computes in BF16 only; set it to bfloat16, or "
      "trainer.device=cpu",
      DTypeName(compute_dtype));
}

}  // namespace tandem
