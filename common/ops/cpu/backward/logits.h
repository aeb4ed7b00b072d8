// Gradients of the LM head and of the embedding table.
//
// Token log-probs and entropies: for a block of rows, a pass over the vocabulary recomputes the
// logits chunk by chunk and adds their gradients to dhidden and dhead; the log-softmax statistics
// are the forward's. No full row of logits is ever stored.
#pragma once

#include <cstdint>

#include "common/ops/backward_ops.h"
#include "common/ops/cpu/backward/context.h"

namespace tandem {

class LogitsBackward {
 public:
  explicit LogitsBackward(CpuBackwardContext& context) : context_(context) {}

  int64_t workspace_bytes() const { return dlogits_.capacity() + dhidden_.capacity(); }
  void TokenLogProbs(Matrix hidden,
                     const LinearWeight& head,
                     int64_t vocab_limit,
                     const int32_t* targets,
                     const float* temperatures,
                     const RowStats* stats,
                     const float* grad_log_probs,
                     const float* grad_entropy,
                     Matrix dhidden,
                     float* dhead);
  void Embed(const int32_t* ids, FloatMatrix dx, float* dtable);

 private:
  struct LogitsArgs;  // the arguments of TokenLogProbs and the state of a block of rows

  void LogitsRowBlock(const LogitsArgs& args);
  void LogitsChunk(const LogitsArgs& args, int64_t chunk);

  CpuBackwardContext& context_;
  Workspace dlogits_, dhidden_;
};

}  // namespace tandem
