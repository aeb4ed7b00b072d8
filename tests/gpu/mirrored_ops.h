// Ops of a GPU whose arguments may lie in host memory: every call copies what it reads to the
// device, computes there, and copies what it wrote back. For tests that were written for the CPU's
// memory; it is slow.
#pragma once

#include <memory>
#include <vector>

#include "common/device/cuda/cuda_context.h"
#include "parity/op_watch.h"

namespace tandem::testing {

class MirroredOps final : public ForwardOpsDecorator {
 public:
  // `context` is the one of `inner`, which computes in bf16, and outlives the object.
  MirroredOps(CudaContext* context, std::unique_ptr<ForwardOps> inner);

  void Embed(const int32_t* ids, const LinearWeight& table, Matrix out) override;
  void TakeRows(Matrix in, const int32_t* rows, Matrix out) override;
  void RmsNorm(Matrix in, const void* weight, float eps, Matrix out) override;
  // As the device's ops do it: at once.
  void AddRmsNorm(Matrix x, Matrix delta, const void* weight, float eps, Matrix out) override;
  void Linear(Matrix in, const LinearWeight& weight, Matrix out) override;
  void Add(Matrix x, Matrix delta) override;
  void RopeAndStore(Matrix qkv,
                    const AttentionShape& shape,
                    const RopeTable& rope,
                    const std::vector<AttentionSpan>& spans,
                    KvLayer kv) override;
  void CopyBlocks(const AttentionShape& shape,
                  const std::vector<BlockCopy>& copies,
                  KvLayer kv) override;
  void Attention(Matrix qkv,
                 const AttentionShape& shape,
                 const std::vector<AttentionSpan>& spans,
                 KvLayer kv,
                 Matrix out) override;
  void SiluMul(Matrix gate_up, Matrix out) override;
  void TokenLogProbs(Matrix hidden,
                     const LinearWeight& head,
                     int64_t vocab_limit,
                     const int32_t* targets,
                     const float* temperatures,
                     float* log_probs,
                     RowStats* stats) override;
  void Sample(Matrix hidden,
              const LinearWeight& head,
              int64_t vocab_limit,
              const std::vector<SampleRow>& rows,
              SampledToken* out) override;
  void Logits(Matrix hidden, const LinearWeight& head, FloatMatrix out) override;

 private:
  CudaContext* const context_;
};

}  // namespace tandem::testing
