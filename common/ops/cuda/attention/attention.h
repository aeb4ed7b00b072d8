// Rotary embeddings and attention on a GPU, forward and backward, called by CudaForwardOps
// and CudaBackwardOps. Signatures, contracts and errors are those of ForwardOps::RopeAndStore
// and ::Attention (common/ops/forward_ops.h) and BackwardOps::Attention and ::Rope
// (common/ops/backward_ops.h), with matrices, KV and gradients bf16 in device memory, and spans,
// their block tables and rope tables in host memory.
//
// A row's bits: its keys are passed in tiles of 64 (a KV block), ascending, with an online softmax
// that begins anew every kSegmentKeys keys, at absolute positions; segments are then added in
// ascending order (attention_layout.h). Which block of threads does which segment follows from the
// sizes of the call and changes no bit.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include <absl/status/status.h>

#include "common/ops/ops_types.h"

namespace tandem {

class CudaContext;

// The bound of segments that a call's launches and uploads are sized by: a power of two that no
// span's positions go beyond. A step that is a graph has the same shapes of spans and the same
// bound every time (CudaContext::BeginGraph's key).
int64_t AttentionSegmentBound(const std::vector<AttentionSpan>& spans);

// Not thread-safe: the engine thread's, as its context.
class CudaAttention {
 public:
  // InvalidArgument, naming the shape, unless head_dim is 64 or 128 and kv_heads divides heads. To
  // be asked when the ops are made for a model: the methods take no other shape.
  static absl::Status CheckShape(const AttentionShape& shape);

  // `context` must outlive it.
  explicit CudaAttention(CudaContext* context);
  ~CudaAttention();
  CudaAttention(const CudaAttention&) = delete;
  CudaAttention& operator=(const CudaAttention&) = delete;

  // The first call with a rope table copies it to the device, into memory of this object's own; a
  // step that is a graph must have that behind it. So does another table, after which graphs begin
  // anew.
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

  // Slots of CudaContext::Scratch that it uses, each within a call: partial results of segments
  // (in backward, of keys that several spans see), and statistics of rows in backward.
  static constexpr int kPartialsSlot = 14, kStatsSlot = 15;

 private:
  float* FloatScratch(int slot, int64_t bytes);

  struct State;  // plans on the device, and the spans that they were made for
  CudaContext* const context_;
  std::unique_ptr<State> state_;
};

}  // namespace tandem
