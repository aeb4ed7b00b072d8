// Which slots of a padded response count, where only its tokens are known: those up to and with the
// first token that ends it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

namespace tandem {

// 1 or 0 per slot. Without an end all of them count.
inline std::vector<int64_t> ResponseMask(std::span<const int32_t> response,
                                         std::span<const int32_t> end_tokens) {
  const auto end =
      std::find_first_of(response.begin(), response.end(), end_tokens.begin(), end_tokens.end());
  std::vector<int64_t> mask(response.size(), 0);
  const auto length = end - response.begin() + (end == response.end() ? 0 : 1);
  std::fill_n(mask.begin(), length, 1);
  return mask;
}

}  // namespace tandem
