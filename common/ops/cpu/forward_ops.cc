#include "common/ops/cpu/forward_ops.h"

#include <cstring>
#include <memory>
#include <utility>

#include "common/base/check.h"
#include "common/base/status.h"
#include "common/ops/cpu/adapter_rows.h"
#include "common/ops/cpu/gemm_driver.h"
#include "common/ops/cpu/kernels/isa.h"
#include "common/ops/cpu/packed_weight.h"

namespace tandem {
namespace {
constexpr int64_t kThreadScratchBytes = int64_t{512} << 10;
}  // namespace

CpuForwardOps::CpuForwardOps(DType compute_dtype,
                             const KernelSet& kernels,
                             std::shared_ptr<ThreadPool> pool)
    : dtype_(compute_dtype),
      element_bytes_(static_cast<int64_t>(DTypeBytes(compute_dtype))),
      kernels_(kernels),
      pool_(std::move(pool)),
      thread_scratch_(static_cast<size_t>(pool_->threads())) {
  // The scratch that the head always needs, and that suffices for attention up to contexts of
  // thousands of tokens.
  for (Workspace& scratch : thread_scratch_) scratch.Bytes(kThreadScratchBytes);
}

std::string CpuForwardOps::numerics_class() const {
  return fmt::format("cpu-{}-{}", kernels_.numerics, dtype_ == DType::kBFloat16 ? "bf16" : "f32");
}

int64_t CpuForwardOps::workspace_bytes() const {
  int64_t bytes = logits_.capacity() + gathered_.capacity() + chunk_stats_.capacity() +
                  adapter_rows_.capacity() + dropped_.capacity();
  for (const Workspace& scratch : thread_scratch_) bytes += scratch.capacity();
  return bytes;
}

void CpuForwardOps::Embed(const int32_t* ids, const LinearWeight& table, Matrix out) {
  counts_.Add(ForwardOp::kEmbed, out.rows);
  pool_->ParallelRows(out.rows, kRowGrain, [&](int64_t first, int64_t last, int) {
    for (int64_t row = first; row < last; ++row) {
      TANDEM_CHECK(ids[row] >= 0 && ids[row] < table.rows, "token id outside the embedding");
      UnpackRows(table.values, table.cols, dtype_, ids[row], 1, Row(out, row));
    }
  });
}

void CpuForwardOps::TakeRows(Matrix in, const int32_t* rows, Matrix out) {
  for (int64_t row = 0; row < out.rows; ++row) {
    std::memcpy(Row(out, row), Row(in, rows[row]), static_cast<size_t>(out.cols * element_bytes_));
  }
}

void CpuForwardOps::CopyBlocks(const AttentionShape& shape,
                               const std::vector<BlockCopy>& copies,
                               KvLayer kv) {
  const int64_t bytes = KvBlockBytes(shape, dtype_);
  for (const BlockCopy& copy : copies) {
    std::memcpy(kv.base + copy.to * bytes, kv.base + copy.from * bytes, static_cast<size_t>(bytes));
  }
}

void CpuForwardOps::RmsNorm(Matrix in, const void* weight, float eps, Matrix out) {
  counts_.Add(ForwardOp::kRmsNorm, in.rows);
  pool_->ParallelRows(in.rows, kRowGrain, [&](int64_t first, int64_t last, int) {
    for (int64_t row = first; row < last; ++row) {
      kernels_.rms_norm(Row(in, row), weight, eps, in.cols, Row(out, row));
    }
  });
}

void CpuForwardOps::Linear(Matrix in, const LinearWeight& weight, Matrix out) {
  counts_.Add(ForwardOp::kLinear, in.rows);
  TANDEM_CHECK(in.cols == weight.cols && out.cols == weight.rows && in.rows == out.rows,
               "shapes of Linear do not match");
  GemmCall call;
  call.a = in.data;
  call.a_stride = in.stride;
  call.b = weight.values;
  call.panel_bytes = PackedBytes(16, weight.cols, dtype_);
  call.k = weight.cols;
  call.n = weight.rows;
  call.c = out.data;
  call.c_stride = out.stride;
  call.bias = weight.bias;
  AdapterSums adapters;
  if (weight.adapter.parts > 0) {
    float* const t = adapter_rows_.Get<float>(in.rows * weight.adapter.parts * weight.adapter.rank);
    ProjectToRank(*pool_, kernels_, element_bytes_, in, weight, dropped_, t);
    adapters = AdapterSumsOf(weight, t, element_bytes_);
    call.adapters = &adapters;
  }
  RunGemm(*pool_, kernels_, call, in.rows);
}

void CpuForwardOps::Add(Matrix x, Matrix delta) {
  counts_.Add(ForwardOp::kAdd, x.rows);
  pool_->ParallelRows(x.rows, kRowGrain, [&](int64_t first, int64_t last, int) {
    for (int64_t row = first; row < last; ++row) kernels_.add(Row(x, row), Row(delta, row), x.cols);
  });
}

void CpuForwardOps::SiluMul(Matrix gate_up, Matrix out) {
  counts_.Add(ForwardOp::kSiluMul, out.rows);
  pool_->ParallelRows(out.rows, kRowGrain, [&](int64_t first, int64_t last, int) {
    for (int64_t row = first; row < last; ++row) {
      kernels_.silu_mul(Row(gate_up, row), out.cols, Row(out, row));
    }
  });
}

absl::StatusOr<std::unique_ptr<ForwardOps>> CreateCpuForwardOps(DType compute_dtype,
                                                                std::shared_ptr<ThreadPool> pool) {
  TANDEM_CHECK(pool != nullptr, "ops need a thread pool");
  TANDEM_ASSIGN_OR_RETURN(const KernelSet* kernels, ChooseKernels(compute_dtype));
  std::unique_ptr<ForwardOps> ops =
      std::make_unique<CpuForwardOps>(compute_dtype, *kernels, std::move(pool));
  return ops;
}

}  // namespace tandem
