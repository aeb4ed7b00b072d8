// Names every op of the decoder's forward passes and the token that each row belongs to, and hands
// the results to a listener, row by row.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "parity/forward_ops_decorator.h"

namespace tandem {

// One op in the order of a forward pass. Equal indices mean the same op on both sides.
struct OpLabel {
  int index = 0;
  int layer = -1;    // -1: the embedding, or what follows the last layer
  std::string name;  // "linear qkv", "rms_norm q head 3", ...
};

// Token `position` of a sequence; `sequence` is AttentionSpan's, counted by the side that runs.
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

// Not thread-safe, like the ops. The rows that the head takes are recognised by their bytes,
// because callers gather them.
class WatchedOps final : public ForwardOpsDecorator {
 public:
  // Watches a model of `num_layers` layers. `listener` outlives this.
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
  // A result of which the tokens are not known yet: a pass first names them in its first attention.
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
  int adds_ = 0;     // of this pass: two per layer
  int linears_ = 0;  // of this layer
  int norms_ = 0;    // the same
  std::vector<RowKey> keys_;
  std::vector<Waiting> waiting_;
  std::unordered_multimap<std::string, int64_t> residual_rows_;  // of the last layer, by bytes
};

}  // namespace tandem
