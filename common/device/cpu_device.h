// Anonymous memory of the process, for the regions of a CPU worker and for a GPU's pinned memory.
// HostDevice() hands them out.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include <absl/status/statusor.h>

#include "common/device/device.h"

namespace tandem {

class CpuRegion final : public MemoryRegion {
 public:
  // 2 MiB aligned. `location`: device or host, for the ledger. InvalidArgument: no bytes;
  // ResourceExhausted names tag and bytes.
  static absl::StatusOr<std::unique_ptr<MemoryRegion>> Reserve(const std::string& tag,
                                                               int64_t bytes,
                                                               Ledger* ledger,
                                                               Location location);
  // Takes ownership of `bytes` of reserved addresses at `data`.
  CpuRegion(std::string tag, Location location, std::byte* data, int64_t bytes, Ledger* ledger)
      : MemoryRegion(std::move(tag), data, bytes), location_(location), ledger_(ledger) {}
  ~CpuRegion() override;

  // Huge pages are advised; the pages themselves appear at first touch.
  absl::Status Map() override;
  absl::Status Release() override;
  // As the system reports them.
  int64_t ResidentBytes() const override;

 private:
  const Location location_;
  Ledger* const ledger_;
};

}  // namespace tandem
