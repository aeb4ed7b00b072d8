// Long-lived memory of a GPU: addresses are reserved once and never move; pages are mapped and
// released in chunks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <absl/status/statusor.h>
#include <absl/time/time.h>

#include "common/base/clock.h"
#include "common/device/cuda/cuda_context.h"
#include "common/device/device.h"
#include "common/device/ledger.h"

namespace tandem {

struct CudaRegionOptions {
  // Pages are mapped in chunks of this size and a smaller last one; a chunk costs a few calls of
  // the driver, whatever its size.
  int64_t chunk_bytes = int64_t{1} << 30;
  // How much other processes may allocate on the device while a region is released, up to half of
  // the region, without this counting as a failed release: about what a process takes when it first
  // uses a GPU.
  int64_t others_bytes = int64_t{512} << 20;
  // How long the device may take to report released bytes as free: the driver frees them with a
  // delay, and the partner's work may need some of them for a moment.
  absl::Duration free_within = absl::Seconds(2);
  Clock* clock = &RealClock();
};

// For the thread of its context. While it is mapped, bytes() counts as device memory in the ledger,
// and not as resident, because it is not part of the process's memory.
class CudaRegion final : public MemoryRegion {
 public:
  // Reserves addresses for `bytes` (rounded up to the device's granularity) without pages.
  // `context` and `ledger` (may be null) outlive the region. FailedPrecondition: the device cannot
  // reserve addresses without pages.
  static absl::StatusOr<std::unique_ptr<MemoryRegion>> Reserve(CudaContext* context,
                                                               const std::string& tag,
                                                               int64_t bytes,
                                                               Ledger* ledger,
                                                               CudaRegionOptions options = {});
  ~CudaRegion() override;

  // The pages are zeroed in stream order of the context.
  absl::Status Map() override;
  // Waits for the context's stream first; work of other streams on the region must be done.
  // FailedPrecondition: the pages are released, but the device does not report them as free within
  // options.free_within, because another process has opened them or allocated as much; the message
  // says who holds what, as far as this process knows. After any other error the region may still
  // hold some pages: Release or Map may be tried again.
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
  // Releases the chunks, last one first, and removes the region from the ledger.
  absl::Status Drop();
  absl::Status CheckFree(int64_t free_before, int64_t released) const;
  // Describes the device's free bytes and how many of the others this process's ledger counts.
  std::string Holders(int64_t free) const;

  CudaContext* const context_;
  Ledger* const ledger_;
  const CudaRegionOptions options_;
  std::vector<Chunk> chunks_;
};

// Host memory that a GPU's copy engines reach at full speed, for arrays that are offloaded or
// asleep. Huge pages of the process that the driver has pinned. Their addresses never change; they
// count as host memory in the ledger and as resident memory of the process. For the thread of its
// context.
class PinnedRegion final : public MemoryRegion {
 public:
  // `bytes` rounded up to 2 MiB. `context` and `ledger` (may be null) outlive the region.
  static absl::StatusOr<std::unique_ptr<MemoryRegion>> Reserve(CudaContext* context,
                                                               const std::string& tag,
                                                               int64_t bytes,
                                                               Ledger* ledger);
  ~PinnedRegion() override;

  // Makes it readable and writable by host and device. All pages are allocated now, which takes as
  // long as writing them: it is better to keep memory that is used again than to release it.
  absl::Status Map() override;
  // Waits for the context's stream first; copies of other streams must be done. After an error the
  // region is unchanged.
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

// Plain allocations of a GPU, the only memory that legacy IPC can export to another process.
// Freeing memory that another process has open is undefined (cudaIpcCloseMemHandle), and this
// process does not control when the other one closes it. Memory that is given back is therefore
// kept for the next caller that takes as many bytes, such as a trainer's next session, and freed at
// the end of the pool. For the thread of its context.
class ShareablePool {
 public:
  // `context` outlives the pool, which outlives what is taken from it.
  explicit ShareablePool(CudaContext* context) : context_(context) {}
  ~ShareablePool();
  ShareablePool(const ShareablePool&) = delete;
  ShareablePool& operator=(const ShareablePool&) = delete;

  // Zeroed memory of `bytes`, rounded up to 2 MiB; it is zeroed in stream order of the context.
  // `ledger` (may be null) counts it under `tag` until it is given back. ResourceExhausted names
  // tag, bytes and free bytes.
  absl::StatusOr<std::unique_ptr<ShareableMemory>> Take(const std::string& tag,
                                                        int64_t bytes,
                                                        Ledger* ledger);

 private:
  class Taken;
  struct Block {
    std::byte* data = nullptr;
    int64_t bytes = 0;
  };
  absl::StatusOr<Block> Find(const std::string& tag, int64_t bytes);

  CudaContext* const context_;
  std::vector<Block> kept_;
};

}  // namespace tandem
