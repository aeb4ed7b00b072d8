// What a memory ledger says at one moment (design: every byte has a tag and an owner). Plain
// structs, so that the controller can hold them without the device library.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tandem {

enum class Location { kDevice, kHost, kFile };

// "device", "host", "file", and back; what is no such name is the device.
constexpr const char* LocationName(Location location) {
  if (location == Location::kHost) return "host";
  return location == Location::kFile ? "file" : "device";
}
constexpr Location LocationOf(std::string_view name) {
  if (name == LocationName(Location::kHost)) return Location::kHost;
  return name == LocationName(Location::kFile) ? Location::kFile : Location::kDevice;
}

struct LedgerEntry {
  std::string tag;  // weights, kv_cache, optimizer, master, gradients, gather, ...
  Location location = Location::kDevice;
  int64_t current_bytes = 0;
  int64_t peak_bytes = 0;
};

struct LedgerSnapshot {
  std::vector<LedgerEntry> entries;
  // All tags at one moment: a sum of the tags' peaks is no peak. Peaks since the last reset.
  int64_t device_bytes = 0;
  int64_t device_peak_bytes = 0;
  // Device and host together, which is one memory on a CPU; files are none.
  int64_t memory_bytes = 0;
  int64_t memory_peak_bytes = 0;
  // What the system says of the process.
  int64_t process_bytes = 0;       // resident memory
  int64_t process_peak_bytes = 0;  // since the last reset
  int64_t baseline_bytes = 0;      // resident memory before the first byte was counted
  int64_t resident_bytes = 0;      // of what is counted, what has pages: they come at first touch
  // What a GPU's driver says of it, with every process's use in it. 0: the device is the host.
  int64_t driver_total_bytes = 0;
  int64_t driver_free_bytes = 0;  // 0: it was not asked at this moment

  // Of what is counted in the device's memory: on a host that is everything but files.
  int64_t peak_on_device() const {
    return driver_total_bytes > 0 ? device_peak_bytes : memory_peak_bytes;
  }

  // What the process has beside its baseline that nothing here counts. Below zero: it has given
  // back what was part of the baseline.
  int64_t unaccounted_bytes() const { return process_bytes - baseline_bytes - resident_bytes; }
};

// What a GPU's driver says. Bytes; zeros: there is none.
struct DriverMemory {
  int64_t total = 0;
  int64_t free = 0;
};

// What a worker reports at the edge of a phase.
struct PhaseReport {
  std::string phase;
  double seconds = 0;
  LedgerSnapshot ledger;
};

}  // namespace tandem
