// Operations on a full storage of weights, on whichever device it is: they store, read, digest and
// scramble rows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include "common/process/threads.h"
#include "common/types/ledger_snapshot.h"
#include "common/weights/digest.h"
#include "common/weights/layout.h"

namespace tandem {

// Dense rows [row, row + rows) of a tensor, in the layout's dtype; `from` needs only the alignment
// of an element.
struct DenseRows {
  const TensorPlace* place = nullptr;
  int64_t row = 0;
  int64_t rows = 0;
  const std::byte* from = nullptr;
};

// Operations on one storage (layout().total_bytes()). It must be mapped, and its padding zeroed
// once, before a method is called. Not thread-safe: used by the engine thread. Errors are the
// device's; on a CPU only CheckPadding has any.
class StorageOps {
 public:
  virtual ~StorageOps() = default;
  virtual const WeightLayout& layout() const = 0;

  // Writes rows in stream order; no row may occur twice. `location` is the memory that all `from`
  // pointers refer to (on a CPU worker host and device are the same). See SlotMemory for when the
  // source may be overwritten.
  virtual absl::Status StoreRows(const std::vector<DenseRows>& pieces, Location location) = 0;
  // Digests each tensor, re-read from where it is stored.
  virtual absl::StatusOr<std::vector<Digest>> DigestStored(
      const std::vector<const TensorPlace*>& places) = 0;
  // Fills tensors with NaN (0xff bytes); padding stays zero.
  virtual absl::Status Scramble(const std::vector<const TensorPlace*>& places) = 0;
  // OK if bytes that belong to no tensor are zero, otherwise DataLoss as from CheckPadding of
  // layout.h.
  virtual absl::Status CheckPadding() = 0;
  // Reads rows [row, row + rows) into host memory, dense.
  virtual absl::Status ReadRows(const TensorPlace& place,
                                int64_t row,
                                int64_t rows,
                                void* to_host) = 0;
};

// Ops for a storage in host memory. They run on all threads of `pool`. `layout` and `storage`
// outlive them.
std::unique_ptr<StorageOps> CreateCpuStorageOps(const WeightLayout* layout,
                                                std::byte* storage,
                                                std::shared_ptr<ThreadPool> pool);

}  // namespace tandem
