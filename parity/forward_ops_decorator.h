// A ForwardOps that hands every call to another one: the base of those that watch or, in tests,
// disturb an op. What ForwardOps makes of several ops comes as those. Workers do not use it.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/ops/forward_ops.h"

namespace tandem {

class ForwardOpsDecorator : public ForwardOps {
 public:
  explicit ForwardOpsDecorator(std::unique_ptr<ForwardOps> inner) : inner_(std::move(inner)) {}

  DType compute_dtype() const override { return inner_->compute_dtype(); }
  WeightFormat weight_format() const override { return inner_->weight_format(); }
  std::string numerics_class() const override { return inner_->numerics_class(); }
  std::string kernel_set() const override { return inner_->kernel_set(); }
  int64_t workspace_bytes() const override { return inner_->workspace_bytes(); }
  const OpCounts& counts() const override { return inner_->counts(); }

  void BeginStep(const std::vector<AttentionSpan>& spans) override { inner_->BeginStep(spans); }
  bool EndStep() override { return inner_->EndStep(); }
  int64_t StepRows(int64_t rows) const override { return inner_->StepRows(rows); }

  void Embed(const int32_t* ids, const LinearWeight& table, Matrix out) override {
    inner_->Embed(ids, table, out);
  }
  void TakeRows(Matrix in, const int32_t* rows, Matrix out) override {
    inner_->TakeRows(in, rows, out);
  }
  void RmsNorm(Matrix in, const void* weight, float eps, Matrix out) override {
    inner_->RmsNorm(in, weight, eps, out);
  }
  void Linear(Matrix in, const LinearWeight& weight, Matrix out) override {
    inner_->Linear(in, weight, out);
  }
  void Add(Matrix x, Matrix delta) override { inner_->Add(x, delta); }
  void RopeAndStore(Matrix qkv,
                    const AttentionShape& shape,
                    const RopeTable& rope,
                    const std::vector<AttentionSpan>& spans,
                    KvLayer kv) override {
    inner_->RopeAndStore(qkv, shape, rope, spans, kv);
  }
  void CopyBlocks(const AttentionShape& shape,
                  const std::vector<BlockCopy>& copies,
                  KvLayer kv) override {
    inner_->CopyBlocks(shape, copies, kv);
  }
  void Attention(Matrix qkv,
                 const AttentionShape& shape,
                 const std::vector<AttentionSpan>& spans,
                 KvLayer kv,
                 Matrix out) override {
    inner_->Attention(qkv, shape, spans, kv, out);
  }
  void SiluMul(Matrix gate_up, Matrix out) override { inner_->SiluMul(gate_up, out); }
  void TokenLogProbs(Matrix hidden,
                     const LinearWeight& head,
                     int64_t vocab_limit,
                     const int32_t* targets,
                     const float* temperatures,
                     float* log_probs,
                     RowStats* stats) override {
    inner_->TokenLogProbs(hidden, head, vocab_limit, targets, temperatures, log_probs, stats);
  }
  void Sample(Matrix hidden,
              const LinearWeight& head,
              int64_t vocab_limit,
              const std::vector<SampleRow>& rows,
              SampledToken* out) override {
    inner_->Sample(hidden, head, vocab_limit, rows, out);
  }
  void Logits(Matrix hidden, const LinearWeight& head, FloatMatrix out) override {
    inner_->Logits(hidden, head, out);
  }

 protected:
  ForwardOps& inner() const { return *inner_; }

 private:
  const std::unique_ptr<ForwardOps> inner_;
};

}  // namespace tandem
