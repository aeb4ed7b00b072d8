// Long-lived memory of a GPU: addresses are reserved once and keep their place for life; pages come
// and go in chunks.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <absl/time/time.h>

#include "common/base/clock.h"
#include "common/device/cuda/cuda_context.h"
#include "common/device/memory_region.h"

namespace tandem {

struct CudaRegionOptions {
  // Pages come in chunks of this size and a smaller last one; each costs a few calls of the driver,
  // whatever its size.
  int64_t chunk_bytes = int64_t{1} << 30;
  // What other processes may take of the device while a region is released, up to half of it, and
  // no fault is seen: about what a process holds as soon as it uses a GPU at all.
  int64_t others_bytes = int64_t{512} << 20;
  // How long the device may take to say that released bytes are free: the driver gives them back in
  // its own time, and the partner's work may need some for a moment.
  absl::Duration free_within = absl::Seconds(2);
  Clock* clock = &RealClock();
};

// For the thread of its context. bytes() counts in the ledger's device while it is mapped, and not
// as resident: it is no part of the process's memory.
class CudaRegion final : public MemoryRegion {
 public:
  // `bytes` (rounded up to the device's granularity) of addresses, no pages. `context` and `ledger`
  // (may be null) outlive the region. FailedPrecondition: the device cannot give addresses without
  // pages.
  static absl::StatusOr<std::unique_ptr<MemoryRegion>> Reserve(CudaContext* context,
                                                               const std::string& tag,
                                                               int64_t bytes,
                                                               Ledger* ledger,
                                                               CudaRegionOptions options = {});
  ~CudaRegion() override;

  // The zeros come in the order of the context's stream.
  absl::Status Map() override;
  // Waits for the context's stream first; work of other streams on the region must be done.
  // FailedPrecondition: the pages are given back, and yet the device does not say within
  // options.free_within that they are free, because another process has opened them or taken as
  // much; the message says who holds what, as far as this process knows. After any other error the
  // region still holds some pages: Release or Map may be tried again.
  absl::Status Release() override;
  int64_t ResidentBytes() const override;

 private:
  struct Chunk {
    CudaPages pages = 0;
    int64_t offset = 0;
    int64_t bytes = 0;
    bool mapped = false;
  };
  CudaRegion(CudaContext* context,
             std::string tag,
             std::byte* data,
             int64_t bytes,
             Ledger* ledger,
             CudaRegionOptions options)
      : MemoryRegion(std::move(tag), data, bytes),
        context_(context),
        ledger_(ledger),
        options_(options) {}

  absl::Status MapChunks();
  // Gives the chunks back, the last one first, and takes the region out of the ledger.
  absl::Status Drop();
  absl::Status CheckFree(int64_t free_before, int64_t released) const;
  // What is free of the device, and what this process's ledger has there.
  std::string Holders(int64_t free) const;

  CudaContext* const context_;
  Ledger* const ledger_;
  const CudaRegionOptions options_;
  std::vector<Chunk> chunks_;
};

}  // namespace tandem
