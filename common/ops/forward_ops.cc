#include "common/ops/forward_ops.h"

#include <fmt/format.h>

namespace tandem {

std::string OpCounts::Text() const {
  std::string text;
  for (int i = 0; i < kForwardOps; ++i) {
    const Count& count = of[static_cast<size_t>(i)];
    if (count.calls == 0) continue;
    text += fmt::format("{}{} {} ({} rows)", text.empty() ? "" : ", ",
                        ForwardOpName(static_cast<ForwardOp>(i)), count.calls, count.rows);
  }
  return text.empty() ? "none" : text;
}

void ForwardOps::AddRmsNorm(Matrix x, Matrix delta, const void* weight, float eps, Matrix out) {
  Add(x, delta);
  RmsNorm(x, weight, eps, out);
}

void ForwardOps::HeadRmsNorms(Matrix qkv,
                              const AttentionShape& shape,
                              const void* q_weight,
                              const void* k_weight,
                              float eps) {
  const auto head_bytes = shape.head_dim * static_cast<int64_t>(DTypeBytes(compute_dtype()));
  for (int64_t head = 0; head < shape.heads + shape.kv_heads; ++head) {
    Matrix part = qkv;
    part.data = static_cast<std::byte*>(qkv.data) + head * head_bytes;
    part.cols = shape.head_dim;
    RmsNorm(part, head < shape.heads ? q_weight : k_weight, eps, part);
  }
}

}  // namespace tandem
