// Who holds how many bytes, by tag and place.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <utility>

#include "common/types/ledger_snapshot.h"

namespace tandem {

// "device", "host", "file".
std::string LocationName(Location location);
// Bytes held under `tag` wherever they lie, and in `location` under whatever tag.
int64_t BytesOf(const LedgerSnapshot& snapshot, const std::string& tag);
int64_t BytesIn(const LedgerSnapshot& snapshot, Location location);

// Thread-safe.
class Ledger {
 public:
  // A negative delta gives bytes back; a tag never falls below zero (that is a bug: it aborts).
  void Add(const std::string& tag, Location location, int64_t delta_bytes);
  // Ordered by tag, then location; peaks since the last ResetPeaks. The process figures are read
  // from the system now.
  LedgerSnapshot Snapshot() const;
  // Peaks start again from what is held now, the process's included.
  void ResetPeaks();

 private:
  struct Amount {
    int64_t current = 0;
    int64_t peak = 0;
  };
  mutable std::mutex mutex_;
  std::map<std::pair<std::string, Location>, Amount> amounts_;
};

}  // namespace tandem
