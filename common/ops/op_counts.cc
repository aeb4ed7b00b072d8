#include "common/ops/op_counts.h"

#include <fmt/format.h>

namespace tandem {

const char* ForwardOpName(ForwardOp op) {
  static constexpr std::array<const char*, kForwardOps> kNames = {
      "embed",     "rms_norm", "linear",          "add",    "rope_and_store",
      "attention", "silu_mul", "token_log_probs", "sample", "logits"};
  return kNames[static_cast<size_t>(op)];
}

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

}  // namespace tandem
