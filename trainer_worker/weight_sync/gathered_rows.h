// A range of rows of a full tensor, where every rank makes its own part of it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <absl/status/statusor.h>

#include "trainer_worker/shard/weight_rows.h"
#include "trainer_worker/weight_sync/weight_publisher.h"

namespace tandem {

// What AllGatherV takes: this rank's part lies at its place in `dest` already.
struct PlacedRows {
  std::byte* mine = nullptr;
  std::vector<int64_t> bytes;  // of every rank's part
};

// Makes this rank's part of `rows`, rounded to `dtype`, at its place in `dest`, which has room for
// all of them. Errors as PolicyRows.
absl::StatusOr<PlacedRows> PlaceMyRows(PolicyRows& policy,
                                       const TensorRows& rows,
                                       DType dtype,
                                       std::byte* dest);

}  // namespace tandem
