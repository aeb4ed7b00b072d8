// The contents of a memory ledger at one moment. Plain structs, so that the controller can hold
// them without the device library.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tandem {

enum class Location { kDevice, kHost, kFile };

// "device", "host" or "file".
constexpr const char* LocationName(Location location) {
  if (location == Location::kHost) return "host";
  return location == Location::kFile ? "file" : "device";
}
// Unknown names are taken for the device.
constexpr Location ParseLocation(std::string_view name) {
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
  // Sums over all tags. Peaks are of these sums, not sums of the tags' peaks, since the last reset.
  int64_t device_bytes = 0;
  int64_t device_peak_bytes = 0;
  // Device and host together, without files; on a CPU they are the same memory.
  int64_t memory_bytes = 0;
  int64_t memory_peak_bytes = 0;
  // Reported by the operating system.
  int64_t process_bytes = 0;       // resident memory
  int64_t process_peak_bytes = 0;  // since the last reset
  int64_t baseline_bytes = 0;      // resident memory before the first byte was counted
  int64_t resident_bytes = 0;      // the part of the counted bytes that has been touched
  // Reported by a GPU's driver, for all processes together. 0: the device is the host.
  int64_t driver_total_bytes = 0;
  int64_t driver_free_bytes = 0;  // 0: not queried at this moment

  // Peak of the bytes that count against the device: on a CPU all but files.
  int64_t peak_on_device() const {
    return driver_total_bytes > 0 ? device_peak_bytes : memory_peak_bytes;
  }

  // Bytes of the process above its baseline that no tag counts. Negative if memory of the baseline
  // was released.
  int64_t unaccounted_bytes() const { return process_bytes - baseline_bytes - resident_bytes; }
};

// Memory of a GPU in bytes as its driver reports it; zeros without a GPU.
struct DriverMemory {
  int64_t total = 0;
  int64_t free = 0;
};

// A worker's report at the end of a phase.
struct PhaseReport {
  std::string phase;
  double seconds = 0;
  LedgerSnapshot ledger;
};

}  // namespace tandem
