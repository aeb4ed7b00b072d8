// Cuts the tensors of a manifest into entries and the entries into buckets of one slot each.
#pragma once

#include <cstdint>
#include <vector>

#include <absl/status/statusor.h>

#include "common/weights/manifest.h"

namespace tandem {

inline constexpr int64_t kEntryAlignment = 256;  // bytes

// Rows [row, row + rows) of a tensor, dense, at `offset` bytes from the slot's start.
struct BucketEntry {
  int32_t tensor = 0;  // index into the manifest
  int64_t row = 0;
  int64_t rows = 0;
  int64_t offset = 0;
};

struct Bucket {
  std::vector<BucketEntry> entries;  // manifest order, rows ascending
  int64_t bytes = 0;                 // used of the slot
};

// Every row of every tensor once. InvalidArgument names a tensor one of whose rows does not fit
// into a slot. Pure function.
absl::StatusOr<std::vector<Bucket>> PlanBuckets(const Manifest& manifest, int64_t slot_bytes);

}  // namespace tandem
