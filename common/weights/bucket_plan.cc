#include "common/weights/bucket_plan.h"

#include <algorithm>

#include "common/base/status_macros.h"

namespace tandem {
namespace {

int64_t AlignUp(int64_t value) {
  return (value + kEntryAlignment - 1) / kEntryAlignment * kEntryAlignment;
}

}  // namespace

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
      const int64_t used = buckets.empty() ? slot_bytes : AlignUp(buckets.back().bytes);
      const int64_t fit = (slot_bytes - used) / row_bytes;
      if (used >= slot_bytes || fit == 0) {
        buckets.emplace_back();
        continue;
      }
      const int64_t rows = std::min(fit, tensor.rows() - row);
      buckets.back().entries.push_back({static_cast<int32_t>(t), row, rows, used});
      buckets.back().bytes = used + rows * row_bytes;
      row += rows;
    }
  }
  return buckets;
}

}  // namespace tandem
