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

// Thread-safe. Make it before anything that it counts: the process's memory then is the baseline.
class Ledger {
 public:
  Ledger();

  // A negative delta gives bytes back; a tag never falls below zero (that is a bug: it aborts).
  // Outside a file, bytes counted here are taken to have pages.
  void Add(const std::string& tag, Location location, int64_t delta_bytes);
  // A mapping whose pages come and go: `resident` says how many bytes have pages now. Snapshot
  // calls it, on any thread, until RemoveRegion(key) returns.
  void AddRegion(const void* key,
                 const std::string& tag,
                 Location location,
                 int64_t bytes,
                 std::function<int64_t()> resident);
  // Does nothing where no region has that key.
  void RemoveRegion(const void* key);

  // Runs `change`, which maps memory that another process counts, or unmaps it, `delta_bytes` in
  // all; it returns true if it did. Snapshots of this process leave that memory out, and none falls
  // in between.
  void ChangeForeign(int64_t delta_bytes, const std::function<bool()>& change);

  // `read` returns the driver's figures of the device; every Snapshot from now on calls it, on its
  // thread. Once, before others use the ledger.
  void SetDriverReader(std::function<DriverMemory()> read);

  // Ordered by tag, then location; peaks since the last ResetPeaks. The system's figures are read
  // now, in about a millisecond per GiB of regions, during which others may count; only
  // RemoveRegion waits until its region is read.
  LedgerSnapshot Snapshot() const;
  // What Snapshot would call memory_bytes, without asking the system.
  int64_t memory_bytes() const;
  // Peaks, that of the process included, start again from the present amounts.
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

  // Of all these regions, without the mutex; each is let go once it is read.
  int64_t ResidentBytes(const std::vector<Region*>& regions) const;

  const int64_t baseline_bytes_;
  std::function<DriverMemory()> driver_;
  mutable Mutex amounts_mutex_;
  mutable ConditionVariable region_read_;
  std::map<std::pair<std::string, Location>, Amount> amounts_ ABSL_GUARDED_BY(amounts_mutex_);
  Amount device_ ABSL_GUARDED_BY(amounts_mutex_);
  Amount memory_ ABSL_GUARDED_BY(amounts_mutex_);
  // Nodes stay where they are while others come and go.
  mutable std::map<const void*, Region> regions_ ABSL_GUARDED_BY(amounts_mutex_);
  // Bytes of memory_ in no region.
  int64_t outside_regions_ ABSL_GUARDED_BY(amounts_mutex_) = 0;
  int64_t foreign_ ABSL_GUARDED_BY(amounts_mutex_) = 0;
  // Peak of the process without foreign bytes, before foreign_ last changed.
  int64_t own_peak_ ABSL_GUARDED_BY(amounts_mutex_) = 0;
};

}  // namespace tandem
