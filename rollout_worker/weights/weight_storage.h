// The memory of the rollout's weights: one region, laid out by a WeightLayout (tag weights). Its
// addresses never change; its pages are released when the rollout sleeps, after a copy to host
// memory if the weights are to be kept.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include <absl/status/statusor.h>

#include "common/device/device.h"
#include "common/device/ledger.h"
#include "common/weights/layout.h"
#include "common/weights/storage_ops.h"

namespace tandem {

// Not thread-safe: used by the engine thread. Knows where the bytes are stored, not whether they
// are a complete version.
class WeightStorage {
 public:
  // Reserves addresses; pages are allocated by Map. `device`, `layout` and `ledger` must outlive
  // the storage.
  static absl::StatusOr<std::unique_ptr<WeightStorage>> Create(Device* device,
                                                               const WeightLayout* layout,
                                                               Ledger* ledger);

  // Maps zeroed pages; does nothing if pages are already mapped.
  absl::Status Map() { return storage_->Map(); }
  // Copies all bytes to host memory and releases the device's pages. Does nothing if the weights
  // are already there. FailedPrecondition: there are no mapped weights.
  absl::Status MoveToHost();
  // Maps pages and fills them from host memory. A CPU worker then frees the copy; a GPU worker
  // keeps it, as pinning memory again for each sleep takes longer than the copy.
  absl::Status MoveToDevice();
  // Releases all memory, including the host copy.
  absl::Status Drop();

  // Reads every tensor of the HF checkpoint in `model_dir`, rounded to the layout's dtype, and
  // stores it with `ops`, which must be this storage's. Requires mapped pages. NotFound,
  // InvalidArgument or DataLoss name the file and the tensor; the stored bytes are undefined then.
  absl::Status LoadCheckpoint(const std::string& model_dir, const ModelSpec& spec, StorageOps& ops);

  Device* device() const { return device_; }
  std::byte* data() const { return storage_->data(); }
  int64_t bytes() const { return storage_->bytes(); }
  bool mapped() const { return storage_->mapped(); }
  bool on_host() const { return on_host_; }
  int64_t resident_bytes() const { return storage_->ResidentBytes(); }

 private:
  WeightStorage(Device* device, const WeightLayout* layout, Ledger* ledger)
      : device_(device), layout_(layout), ledger_(ledger) {}

  Device* const device_;
  const WeightLayout* const layout_;
  Ledger* const ledger_;
  std::unique_ptr<MemoryRegion> storage_;
  std::unique_ptr<MemoryRegion> host_;
  bool on_host_ = false;  // the weights are in host_
};

}  // namespace tandem
