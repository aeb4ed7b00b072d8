// Gradients of attention and RoPE. A task is one KV head of a sequence and of the spans that
// continue its prefix. It processes blocks of queries, recomputes their scores, and never stores
// more than a block's rows of the n x n matrix. Its scratch belongs to the thread that runs it.
#pragma once

#include <vector>

#include "common/ops/backward_ops.h"
#include "common/ops/cpu/backward/context.h"

namespace tandem {

class AttentionBackward {
 public:
  explicit AttentionBackward(CpuBackwardContext& context) : context_(context) {}

  void Attention(Matrix qkv,
                 const AttentionShape& shape,
                 const std::vector<AttentionSpan>& spans,
                 Matrix out,
                 Matrix dout,
                 Matrix dqkv);
  void Rope(Matrix dqkv,
            const AttentionShape& shape,
            const RopeTable& rope,
            const std::vector<AttentionSpan>& spans);

 private:
  CpuBackwardContext& context_;
};

}  // namespace tandem
