// Who holds how many bytes, by tag and place (design.md §6).
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace tandem {

enum class Location { kDevice, kHost, kFile };
// "device", "host", "file".
std::string LocationName(Location location);

struct LedgerEntry {
  std::string tag;  // weights, kv_cache, optimizer, master, gradients, gather, ...
  Location location = Location::kDevice;
  int64_t current_bytes = 0;
  int64_t peak_bytes = 0;  // since the last ResetPeaks
};

struct LedgerSnapshot {
  std::vector<LedgerEntry> entries;  // ordered by tag, then location
  int64_t process_bytes = 0;         // resident, as the system reports it
  int64_t process_peak_bytes = 0;

  int64_t current_bytes(Location location) const;  // sum over tags
  int64_t current_bytes(const std::string& tag) const;
};

// Thread-safe.
class Ledger {
 public:
  // A negative delta gives bytes back; a tag never falls below zero (that is a bug: it aborts).
  void Add(const std::string& tag, Location location, int64_t delta_bytes);
  // The process figures are read from the system at the time of the call.
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
