// Who holds how many bytes, by tag and place.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "common/base/mutex.h"
#include "common/types/ledger_snapshot.h"

namespace tandem {

// Bytes held under `tag` in all locations.
int64_t BytesOf(const LedgerSnapshot& snapshot, const std::string& tag);

// Thread-safe. Make it before anything that it counts: the process's memory at that time is the
// baseline.
class Ledger {
 public:
  Ledger();

  // A negative delta returns bytes. A tag that would fall below zero is a bug and aborts. Bytes
  // that are counted here, other than files, are assumed to have pages.
  void Add(const std::string& tag, Location location, int64_t delta_bytes);
  // Adds a mapping whose pages come and go. `resident` returns how many bytes have pages now;
  // Snapshot calls it, on any thread, until RemoveRegion(key) returns.
  void AddRegion(const void* key,
                 const std::string& tag,
                 Location location,
                 int64_t bytes,
                 std::function<int64_t()> resident);
  // Does nothing where no region has that key.
  void RemoveRegion(const void* key);

  // Runs `change`, which maps or unmaps memory that another process counts, `delta_bytes` in total,
  // and returns true if it did. Snapshots of this process exclude that memory, and none is taken
  // while `change` runs.
  void ChangeForeign(int64_t delta_bytes, const std::function<bool()>& change);

  // `read` returns the driver's figures of the device; every Snapshot calls it from now on, on its
  // own thread. Call it once, before others use the ledger.
  void SetDriverReader(std::function<DriverMemory()> read);

  // Entries are ordered by tag, then location; peaks are since the last ResetPeaks. The system's
  // figures are read now, which takes about a millisecond per GiB of regions. Others may count
  // meanwhile; only RemoveRegion waits until its region has been read.
  LedgerSnapshot Snapshot() const;
  // The memory_bytes of a Snapshot, without asking the system.
  int64_t memory_bytes() const;
  // Restarts all peaks, that of the process included, from the present amounts.
  void ResetPeaks();

 private:
  struct Amount {
    int64_t current = 0;
    int64_t peak = 0;
    void Add(int64_t delta);
  };
  struct Region {
    std::string tag;
    Location location;
    int64_t bytes;
    std::function<int64_t()> resident;
    int readers = 0;  // snapshots that may still call `resident`
  };
  void AddLocked(const std::string& tag, Location location, int64_t delta_bytes)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(amounts_mutex_);

  // Sums the bytes of all these regions without holding the mutex; each region may be removed once
  // it is read.
  int64_t ResidentBytes(const std::vector<Region*>& regions) const;

  const int64_t baseline_bytes_;
  std::function<DriverMemory()> driver_;
  mutable Mutex amounts_mutex_;
  mutable ConditionVariable region_read_;
  std::map<std::pair<std::string, Location>, Amount> amounts_ ABSL_GUARDED_BY(amounts_mutex_);
  Amount device_ ABSL_GUARDED_BY(amounts_mutex_);
  Amount memory_ ABSL_GUARDED_BY(amounts_mutex_);
  // A map, because its nodes do not move while others are added or removed.
  mutable std::map<const void*, Region> regions_ ABSL_GUARDED_BY(amounts_mutex_);
  // Bytes of memory_ in no region.
  int64_t outside_regions_ ABSL_GUARDED_BY(amounts_mutex_) = 0;
  int64_t foreign_ ABSL_GUARDED_BY(amounts_mutex_) = 0;
  // Peak of the process without foreign bytes, before foreign_ last changed.
  int64_t own_peak_ ABSL_GUARDED_BY(amounts_mutex_) = 0;
};

}  // namespace tandem
