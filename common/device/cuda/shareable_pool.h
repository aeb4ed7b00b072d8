// Plain allocations of a GPU, the only memory whose handle legacy IPC passes to another process.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <absl/status/statusor.h>

#include "common/device/cuda/cuda_context.h"
#include "common/device/ledger.h"
#include "common/device/shareable_memory.h"

namespace tandem {

// Freeing what another process has open is undefined (cudaIpcCloseMemHandle), and that one closes
// it when it pleases. So what is given back is kept for the next that takes as many bytes, a
// trainer's next session; the pool's end frees it. For the thread of its context.
class ShareablePool {
 public:
  // `context` outlives the pool, which outlives what is taken from it.
  explicit ShareablePool(CudaContext* context) : context_(context) {}
  ~ShareablePool();
  ShareablePool(const ShareablePool&) = delete;
  ShareablePool& operator=(const ShareablePool&) = delete;

  // `bytes`, rounded up to 2 MiB, of zeros, which come in the order of the context's stream.
  // `ledger` (may be null) counts them under `tag` until they are given back. ResourceExhausted
  // names tag, bytes and what is free.
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
