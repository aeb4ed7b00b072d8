// How often each forward op ran and on how many rows. Trainer and rollout count for themselves, so
// that equal numbers are known to have been computed twice.
#pragma once

#include <array>
#include <cstdint>
#include <string>

namespace tandem {

enum class ForwardOp {
  kEmbed,
  kRmsNorm,
  kLinear,
  kAdd,
  kRopeAndStore,
  kAttention,
  kSiluMul,
  kTokenLogProbs,
  kSample,
  kLogits
};
inline constexpr int kForwardOps = 10;

// "embed", "rms_norm", ...
const char* ForwardOpName(ForwardOp op);

struct OpCounts {
  struct Count {
    int64_t calls = 0;
    int64_t rows = 0;
  };
  std::array<Count, kForwardOps> of = {};

  void Add(ForwardOp op, int64_t rows) {
    Count& count = of[static_cast<size_t>(op)];
    ++count.calls;
    count.rows += rows;
  }
  const Count& at(ForwardOp op) const { return of[static_cast<size_t>(op)]; }
  // "embed 3 (96 rows), rms_norm 12 (...), ..." of the ops that ran.
  std::string Text() const;
};

}  // namespace tandem
