// Host memory between a device and what only the host can do: read files, write them, talk to other
// hosts' memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include <absl/status/statusor.h>

#include "common/device/device.h"

namespace tandem {

// Memory that both the host and the ops reach, mapped: the device's own on a CPU, else the host's,
// pinned. Errors as the regions'.
absl::StatusOr<std::unique_ptr<MemoryRegion>> TakeHostMemory(Device* device,
                                                             const std::string& tag,
                                                             int64_t bytes,
                                                             Ledger* ledger);

// One buffer under the tag gather, which grows with the largest range so far; none where the host
// reads the device's memory itself. Not thread-safe.
class HostStaging {
 public:
  // Both outlive it.
  HostStaging(Device* device, Ledger* ledger) : device_(device), ledger_(ledger) {}

  // Room for `bytes`, which is what the last call gave.
  absl::StatusOr<std::byte*> Room(int64_t bytes);
  // Bytes of the device's memory, in the buffer.
  absl::StatusOr<const std::byte*> Fetch(const void* from, int64_t bytes);
  // The same where the device has memory of its own, else where they lie.
  absl::StatusOr<const float*> Floats(const float* from, int64_t count);
  void Release() { memory_.reset(); }

 private:
  Device* const device_;
  Ledger* const ledger_;
  std::unique_ptr<MemoryRegion> memory_;
};

}  // namespace tandem
