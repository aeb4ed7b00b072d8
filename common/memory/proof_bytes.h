// What cuBLASLt's proof of row invariance (common/ops/cuda/linear/row_invariance.h) may take of a
// GPU, which the memory plan counts.
#pragma once

#include <cstdint>

namespace tandem {

// Of the operands of one shape, for a moment.
inline constexpr int64_t kLtProofBytes = int64_t{1} << 30;

}  // namespace tandem
