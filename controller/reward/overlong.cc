#include "controller/reward/overlong.h"

#include <algorithm>

#include "common/base/status.h"

namespace tandem {

absl::StatusOr<OverlongPenalty> OverlongPenalty::Create(int64_t max_tokens,
                                                        int64_t buffer_tokens,
                                                        double factor) {
  if (buffer_tokens <= 0 || buffer_tokens > max_tokens) {
    return InvalidArgument(
        "the overlong buffer has {} tokens; it must be above 0 and at most the longest response of "
        "{} tokens",
        buffer_tokens, max_tokens);
  }
  return OverlongPenalty{max_tokens, buffer_tokens, factor};
}

double OverlongPenalty::operator()(int64_t response_tokens) const {
  const auto excess = static_cast<double>(response_tokens - (max_tokens - buffer_tokens));
  return std::min(-excess / static_cast<double>(buffer_tokens) * factor, 0.0);
}

}  // namespace tandem
