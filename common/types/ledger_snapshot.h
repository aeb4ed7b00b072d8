// What a memory ledger says at one moment (design: every byte has a tag and an owner). Plain
// structs, so that the controller can hold them without the device library.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tandem {

enum class Location { kDevice, kHost, kFile };

struct LedgerEntry {
  std::string tag;  // weights, kv_cache, optimizer, master, gradients, gather, ...
  Location location = Location::kDevice;
  int64_t current_bytes = 0;
  int64_t peak_bytes = 0;
};

struct LedgerSnapshot {
  std::vector<LedgerEntry> entries;
  int64_t process_bytes = 0;       // resident memory as the system reports it
  int64_t process_peak_bytes = 0;  // largest so far
};

// What a worker reports at the edge of a phase.
struct PhaseReport {
  std::string phase;
  double seconds = 0;
  LedgerSnapshot ledger;
};

}  // namespace tandem
