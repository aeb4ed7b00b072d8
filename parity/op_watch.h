// A ForwardOps that forwards every call to another one: the base of decorators that observe or, in
// tests, disturb an op. Combined ops of ForwardOps are received as their parts. Workers do not use
// it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
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

#define TANDEM_FORWARD_OP(op, name, parameters, arguments) \
  void op parameters override { inner_->op arguments; }
#include "common/ops/forward_ops.def"

 protected:
  ForwardOps& inner() const { return *inner_; }

 private:
  const std::unique_ptr<ForwardOps> inner_;
};

// One op in the order of a forward pass. Equal indices mean the same op on both sides.
struct OpLabel {
  int index = 0;
  int layer = -1;    // -1: the embedding, or an op after the last layer
  std::string name;  // "linear qkv", "rms_norm q head 3", ...
};

// A token: its position in a sequence, as numbered by AttentionSpan on the side that runs.
struct RowKey {
  uint64_t sequence = 0;
  int64_t position = 0;
};

// Called by the thread that runs the ops.
class OpListener {
 public:
  virtual ~OpListener() = default;
  // `data` is valid during the call.
  virtual void OnRow(const OpLabel& label, const RowKey& key, const void* data, int64_t bytes) = 0;
};

// Reports every op of the decoder's forward passes to a listener, row by row, with the token of
// each row. Not thread-safe, like the ops. Rows of the head are identified by their bytes, because
// callers gather them.
class WatchedOps final : public ForwardOpsDecorator {
 public:
  // Watches a model of `num_layers` layers. `listener` must outlive the object.
  WatchedOps(std::unique_ptr<ForwardOps> inner, int num_layers, OpListener* listener)
      : ForwardOpsDecorator(std::move(inner)), num_layers_(num_layers), listener_(listener) {}

  void Embed(const int32_t* ids, const LinearWeight& table, Matrix out) override;
  void RmsNorm(Matrix in, const void* weight, float eps, Matrix out) override;
  void Linear(Matrix in, const LinearWeight& weight, Matrix out) override;
  void Add(Matrix x, Matrix delta) override;
  void Attention(Matrix qkv,
                 const AttentionShape& shape,
                 const std::vector<AttentionSpan>& spans,
                 KvLayer kv,
                 Matrix out) override;
  void SiluMul(Matrix gate_up, Matrix out) override;

 private:
  // A result whose tokens are not known yet: a pass names them in its first attention call.
  struct Waiting {
    OpLabel label;
    std::vector<std::string> rows;
  };
  bool in_layers() const { return adds_ < 2 * num_layers_; }
  std::string RowBytes(const Matrix& matrix, int64_t row) const;
  OpLabel Label(const std::string& name);
  void Report(const std::string& name, const Matrix& out);
  void LearnRows(const std::vector<AttentionSpan>& spans, int64_t rows);
  void FinalNorm(const Matrix& in, const Matrix& out, const void* weight, float eps);

  const int num_layers_;
  OpListener* const listener_;
  int next_index_ = 0;
  int adds_ = 0;     // in this pass: two per layer
  int linears_ = 0;  // in this layer
  int norms_ = 0;    // in this layer
  std::vector<RowKey> keys_;
  std::vector<Waiting> waiting_;
  std::unordered_multimap<std::string, int64_t> residual_rows_;  // last layer's rows by their bytes
};

}  // namespace tandem
