// Rotary embeddings and attention on a GPU, forward and backward, called by CudaForwardOps and
// CudaBackwardOps. Signatures, contracts and errors are those of ForwardOps::RopeAndStore and
// ::Attention (common/ops/forward_ops.h) and BackwardOps::Attention and ::Rope
// (common/ops/backward_ops.h). Matrices, KV and gradients are bf16 in device memory; spans, their
// block tables and rope tables are in host memory.
//
// A row's bits: its keys are processed in tiles of 64 (a KV block), ascending, with an online
// softmax that restarts every kSegmentKeys keys, at absolute positions; segments are then added in
// ascending order (attention_layout.h). Which block of threads processes which segment depends on
// the sizes of the call and changes no bit.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include <absl/status/status.h>

#include "common/ops/ops_types.h"

namespace tandem {

class CudaContext;

// The bound of segments from which a call's launches and uploads get their sizes: a power of two
// that is at least the number of segments of any span. A step that is a graph has the same shapes
// of spans and the same bound every time (the key of CudaContext::BeginGraph).
int64_t AttentionSegmentBound(const std::vector<AttentionSpan>& spans);

// Not thread-safe: used by the engine thread, like its context.
class CudaAttention {
 public:
  // InvalidArgument, naming the shape, unless head_dim is 64 or 128 and kv_heads divides heads.
  // Call it when the ops are made for a model, as the methods support no other shape.
  static absl::Status CheckShape(const AttentionShape& shape);

  // `context` must outlive it.
  explicit CudaAttention(CudaContext* context);
  ~CudaAttention();
  CudaAttention(const CudaAttention&) = delete;
  CudaAttention& operator=(const CudaAttention&) = delete;

  // The first call with a rope table copies the table to device memory of this object; this must
  // have happened before a step that is a graph. Another table is copied again, after which graphs
  // are recorded anew.
  void RopeAndStore(Matrix qkv,
                    const AttentionShape& shape,
                    const RopeTable& rope,
                    const std::vector<AttentionSpan>& spans,
                    KvLayer kv);
  void Forward(Matrix qkv,
               const AttentionShape& shape,
               const std::vector<AttentionSpan>& spans,
               KvLayer kv,
               Matrix out);
  void Backward(Matrix qkv,
                const AttentionShape& shape,
                const std::vector<AttentionSpan>& spans,
                Matrix out,
                Matrix dout,
                Matrix dqkv);
  void Rope(Matrix dqkv,
            const AttentionShape& shape,
            const RopeTable& rope,
            const std::vector<AttentionSpan>& spans);

  // The slots of CudaContext::Scratch that it uses within a call: partial results of segments (in
  // backward, of keys that several spans see), and statistics of rows in backward.
  static constexpr int kPartialsSlot = 14, kStatsSlot = 15;

 private:
  float* FloatScratch(int slot, int64_t bytes);

  struct State;  // plans on the device, and the spans that they were made for
  CudaContext* const context_;
  std::unique_ptr<State> state_;
};

}  // namespace tandem
