#include "common/weights/bucket_plan.h"

#include <algorithm>

#include "common/base/round_up.h"
#include "common/base/status_macros.h"
#include "common/ops/cpu/packed_weight.h"

namespace tandem {

absl::StatusOr<std::vector<Bucket>> PlanBuckets(const Manifest& manifest, int64_t slot_bytes) {
  std::vector<Bucket> buckets;
  for (size_t t = 0; t < manifest.size(); ++t) {
    const ManifestTensor& tensor = manifest[t];
    const int64_t row_bytes = tensor.row_bytes();
    if (tensor.bytes() == 0) continue;
    if (row_bytes > slot_bytes) {
      return InvalidArgument(
          "a row of {} has {} bytes and does not fit into a slot of {}: set weight_sync.bucket_mb "
          "to at least {}",
          tensor.name, row_bytes, slot_bytes, (row_bytes + (1 << 20) - 1) >> 20);
    }
    for (int64_t row = 0; row < tensor.rows();) {
      const int64_t used =
          buckets.empty() ? slot_bytes : RoundUp(buckets.back().bytes, kEntryAlignment);
      const int64_t fit = std::max<int64_t>(0, slot_bytes - used) / row_bytes;
      const int64_t left = tensor.rows() - row;
      // What is cut is cut between the panels of packed weights, if a slot has room for one.
      const bool cut = fit < left && (used > 0 || fit >= kPackedPanelRows);
      const int64_t rows = cut ? fit - fit % kPackedPanelRows : std::min(fit, left);
      if (rows == 0) {
        buckets.emplace_back();
        continue;
      }
      buckets.back().entries.push_back({static_cast<int32_t>(t), row, rows, used});
      buckets.back().bytes = used + rows * row_bytes;
      row += rows;
    }
  }
  return buckets;
}

}  // namespace tandem
