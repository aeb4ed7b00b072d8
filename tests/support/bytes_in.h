// Sums of what a ledger's snapshot holds.
#pragma once

#include <cstdint>

#include "common/types/ledger_snapshot.h"

namespace tandem::testing {

// Bytes held in `location` under whatever tag.
inline int64_t BytesIn(const LedgerSnapshot& snapshot, Location location) {
  int64_t sum = 0;
  for (const LedgerEntry& entry : snapshot.entries) {
    if (entry.location == location) sum += entry.current_bytes;
  }
  return sum;
}

}  // namespace tandem::testing
