// Long-lived memory of a GPU: addresses are reserved once and keep their place for life; pages come
// and go in chunks.
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
  // Pages come in chunks of this size and a smaller last one; each costs a few calls of the driver,
  // whatever its size.
  int64_t chunk_bytes = int64_t{1} << 30;
  // What other processes may take of the device while a region is released, up to half of it, and
  // no fault is seen: about as much as a process holds as soon as it uses a GPU at all.
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
  // In words: the device's free bytes, and those of this process's ledger there.
  std::string Holders(int64_t free) const;

  CudaContext* const context_;
  Ledger* const ledger_;
  const CudaRegionOptions options_;
  std::vector<Chunk> chunks_;
};

// Host memory that a GPU's copy engines reach at full speed: the home of arrays that are offloaded
// or asleep.

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
  // writing them: memory that is used again is better kept than released.
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

// Plain allocations of a GPU, the only memory whose handle legacy IPC passes to another process.

// Freeing memory that another process has open is undefined (cudaIpcCloseMemHandle), and that
// process closes it when it pleases. So memory that is given back is kept for the next caller that
// takes as many bytes, a trainer's next session; the pool's end frees it. For the thread of its
// context.
class ShareablePool {
 public:
  // `context` outlives the pool, which outlives what is taken from it.
  explicit ShareablePool(CudaContext* context) : context_(context) {}
  ~ShareablePool();
  ShareablePool(const ShareablePool&) = delete;
  ShareablePool& operator=(const ShareablePool&) = delete;

  // `bytes`, rounded up to 2 MiB, of zeros, which come in the order of the context's stream.
  // `ledger` (may be null) counts them under `tag` until they are given back. ResourceExhausted
  // names tag, bytes and free bytes.
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
