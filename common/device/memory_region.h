// Long-lived device memory of a CPU worker: addresses are reserved once and keep their place for
// life; pages come and go.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include "common/device/ledger.h"

namespace tandem {

// Not thread-safe.
class MemoryRegion {
 public:
  // Reserves `bytes` (rounded up to 2 MiB) of addresses, 2 MiB aligned, no pages. `ledger` may be
  // null; it outlives the region and counts bytes() under `tag` while the region is mapped.
  // ResourceExhausted names tag and bytes.
  static absl::StatusOr<std::unique_ptr<MemoryRegion>> Reserve(const std::string& tag,
                                                               int64_t bytes,
                                                               Ledger* ledger);
  ~MemoryRegion();
  MemoryRegion(const MemoryRegion&) = delete;
  MemoryRegion& operator=(const MemoryRegion&) = delete;

  // Makes the range readable and writable; all bytes are zero. Huge pages are advised; the pages
  // themselves appear at first touch. Does nothing if mapped. ResourceExhausted if the machine has
  // less than bytes() available, naming tag, bytes and what is available.
  absl::Status Map();
  // Gives the pages back to the system and makes the range unreadable. Does nothing if not mapped.
  absl::Status Release();

  const std::string& tag() const { return tag_; }
  std::byte* data() const { return data_; }  // the same for life
  int64_t bytes() const { return bytes_; }
  bool mapped() const { return mapped_; }
  // Bytes of the range that have pages now, from the system.
  int64_t ResidentBytes() const;

 private:
  MemoryRegion(std::string tag, std::byte* data, int64_t bytes, Ledger* ledger)
      : tag_(std::move(tag)), data_(data), bytes_(bytes), ledger_(ledger) {}
  const std::string tag_;
  std::byte* const data_;
  const int64_t bytes_;
  Ledger* const ledger_;
  bool mapped_ = false;
};

}  // namespace tandem
