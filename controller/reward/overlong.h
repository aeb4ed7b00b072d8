// DAPO's soft penalty for long responses (Yu et al. 2025, equation 13): inside the last
// `buffer_tokens` before `max_tokens` the penalty grows linearly from 0 to `factor`.
#pragma once

#include <cstdint>

#include <absl/status/statusor.h>

namespace tandem {

struct OverlongPenalty {
  int64_t max_tokens = 0;     // response length at which the penalty is `factor`
  int64_t buffer_tokens = 0;  // 0 < buffer_tokens <= max_tokens
  double factor = 1.0;

  // InvalidArgument unless 0 < buffer_tokens <= max_tokens.
  static absl::StatusOr<OverlongPenalty> Create(int64_t max_tokens,
                                                int64_t buffer_tokens,
                                                double factor);
  // At most 0: min(-(tokens - (max_tokens - buffer_tokens)) / buffer_tokens * factor, 0).
  double operator()(int64_t response_tokens) const;
};

}  // namespace tandem
