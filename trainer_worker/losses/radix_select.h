// The largest k of numbers that are spread over ranks, without gathering them: bytes of the numbers
// are counted, the highest first, until it is known which of them belong to the k.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include <absl/status/statusor.h>

#include "common/comm/communicator.h"

namespace tandem {

// Ordered by its words, the first one the most significant.
using SelectionKey = std::array<uint64_t, 3>;

// Collective, the same `count` on every rank: 1 for every key of this rank that is among the
// `count` largest of all ranks'. Keys are unique: of equal ones at the border none is chosen. At
// most 24 sums of 256 numbers; usually about as many as the first word has bytes.
absl::StatusOr<std::vector<uint8_t>> SelectLargest(const std::vector<SelectionKey>& keys,
                                                   int64_t count,
                                                   Communicator& communicator);

}  // namespace tandem
