// Host memory that a GPU's copy engines reach at full speed: home of what is offloaded, and of what
// sleeps.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "common/device/cuda/cuda_context.h"
#include "common/device/memory_region.h"

namespace tandem {

// Huge pages of the process that the driver has pinned: their addresses stay, they count in the
// ledger's host and in the process's resident memory. For the thread of its context.
class PinnedRegion final : public MemoryRegion {
 public:
  // `bytes` rounded up to 2 MiB. `context` and `ledger` (may be null) outlive the region.
  static absl::StatusOr<std::unique_ptr<MemoryRegion>> Reserve(CudaContext* context,
                                                               const std::string& tag,
                                                               int64_t bytes,
                                                               Ledger* ledger);
  ~PinnedRegion() override;

  // Readable and writable by host and device. All pages come at once, which takes as long as
  // writing them: what is used again is better kept than released.
  absl::Status Map() override;
  // Waits for the context's stream first; copies of other streams must be done. After an error the
  // region is as it was.
  absl::Status Release() override;
  int64_t ResidentBytes() const override { return host_->ResidentBytes(); }

 private:
  PinnedRegion(CudaContext* context, std::unique_ptr<MemoryRegion> host)
      : MemoryRegion(host->tag(), host->data(), host->bytes()),
        context_(context),
        host_(std::move(host)) {}

  CudaContext* const context_;
  const std::unique_ptr<MemoryRegion> host_;
};

}  // namespace tandem
