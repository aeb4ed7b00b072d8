// What of a storage belongs to no tensor: the padding of packed weights, which products read, and
// the gaps between tensors. No digest of a tensor covers it; it is zero for life.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <absl/status/status.h>

#include "common/weights/layout.h"

namespace tandem {

// Bytes [begin, end) of a group, between two stored tensors or after the last.
struct PaddingGap {
  int layer = -1;
  int64_t begin = 0, end = 0;
  std::string after;  // the stored tensor before it
  int64_t bytes() const { return end - begin; }
};

// Those of all groups, without empty ones; the padding inside of packed weights is not in them.
std::vector<PaddingGap> PaddingGaps(const WeightLayout& layout);
// `held` are its bytes. DataLoss names layer, stored tensor and the first byte that is not zero.
absl::Status CheckZero(const PaddingGap& gap, const std::byte* held);

// Whether all padding is zero in a full storage in host memory (layout.total_bytes()). DataLoss as
// above. Takes about as long as reading the padding.
absl::Status CheckPadding(const WeightLayout& layout, const std::byte* storage);

}  // namespace tandem
