#include "common/device/cuda/pinned_region.h"

#include "common/base/device_lost.h"
#include "common/base/status_macros.h"
#include "common/device/device.h"

namespace tandem {

absl::StatusOr<std::unique_ptr<MemoryRegion>> PinnedRegion::Reserve(CudaContext* context,
                                                                    const std::string& tag,
                                                                    int64_t bytes,
                                                                    Ledger* ledger) {
  TANDEM_ASSIGN_OR_RETURN(auto host, HostDevice()->ReserveHost(tag, bytes, ledger));
  return std::unique_ptr<MemoryRegion>(new PinnedRegion(context, std::move(host)));
}

// The driver's hold on the pages ends before the pages do.
PinnedRegion::~PinnedRegion() { Release().IgnoreError(); }

absl::Status PinnedRegion::Map() {
  if (mapped()) return absl::OkStatus();
  TANDEM_RETURN_IF_ERROR(host_->Map());
  const absl::Status pinned = context_->api().RegisterHost(data(), bytes());
  if (!pinned.ok()) {
    const absl::Status undone = host_->Release();
    if (IsDeviceLost(pinned)) return pinned;
    return MakeStatus(pinned.code(),
                      "memory region {}: cannot pin {} bytes ({} MiB) of host memory: {}; give the "
                      "process more memory, or offload less{}",
                      tag(), bytes(), bytes() >> 20, std::string(pinned.message()),
                      undone.ok() ? "" : "; " + std::string(undone.message()));
  }
  set_mapped(true);
  return absl::OkStatus();
}

absl::Status PinnedRegion::Release() {
  if (!mapped()) return absl::OkStatus();
  const std::string context = "memory region " + tag() + ": cannot be released";
  TANDEM_RETURN_IF_ERROR(
      Annotate(context_->api().Synchronize(context_->stream()), context + ": work before it"));
  TANDEM_RETURN_IF_ERROR(Annotate(context_->api().UnregisterHost(data()), context));
  set_mapped(false);
  return host_->Release();
}

}  // namespace tandem
