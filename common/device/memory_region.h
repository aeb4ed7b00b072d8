// Long-lived memory of a device: addresses are reserved once and keep their place for life; pages
// come and go.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include <absl/status/status.h>

#include "common/device/ledger.h"

namespace tandem {

// Device::Reserve and ReserveHost make them: `bytes` rounded up to whole pages of 2 MiB, no pages
// yet. The ledger (may be null) outlives the region and counts bytes() under its tag while it is
// mapped. Not thread-safe.
class MemoryRegion {
 public:
  // Releases.
  virtual ~MemoryRegion() = default;
  MemoryRegion(const MemoryRegion&) = delete;
  MemoryRegion& operator=(const MemoryRegion&) = delete;

  // Makes the range readable and writable by the device; all bytes are zero. Does nothing if
  // mapped. ResourceExhausted if the device has less than bytes() available, naming tag, bytes and
  // what is available; the region is as it was then.
  virtual absl::Status Map() = 0;
  // Gives the pages back to the system and makes the range unreadable. Does nothing if not mapped.
  virtual absl::Status Release() = 0;
  // Bytes of the range that have pages now.
  virtual int64_t ResidentBytes() const = 0;

  const std::string& tag() const { return tag_; }
  std::byte* data() const { return data_; }  // the same for life
  int64_t bytes() const { return bytes_; }
  bool mapped() const { return mapped_; }

 protected:
  MemoryRegion(std::string tag, std::byte* data, int64_t bytes)
      : tag_(std::move(tag)), data_(data), bytes_(bytes) {}
  void set_mapped(bool mapped) { mapped_ = mapped; }

 private:
  const std::string tag_;
  std::byte* const data_;
  const int64_t bytes_;
  bool mapped_ = false;
};

}  // namespace tandem
