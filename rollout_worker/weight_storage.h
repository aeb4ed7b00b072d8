// The bytes the rollout's weights live in: one region with a WeightLayout inside (tag weights). Its
// addresses never change; its pages go away when the rollout sleeps, after a copy to host memory if
// the weights are to come back.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include <absl/status/statusor.h>

#include "common/device/ledger.h"
#include "common/device/memory_region.h"
#include "common/weights/layout.h"

namespace tandem {

// Not thread-safe: the engine thread's. Knows where bytes are, not whether they are a version.
class WeightStorage {
 public:
  // Reserves addresses; no pages until Map. `layout` and `ledger` must outlive it.
  static absl::StatusOr<std::unique_ptr<WeightStorage>> Create(const WeightLayout* layout,
                                                               Ledger* ledger);
  ~WeightStorage();
  WeightStorage(const WeightStorage&) = delete;
  WeightStorage& operator=(const WeightStorage&) = delete;

  // Takes pages, zeroed; nothing if they are there.
  absl::Status Map() { return device_->Map(); }
  // Copies all bytes to host memory and gives the device's pages back. Nothing if that was done.
  absl::Status MoveToHost();
  // The way back: pages are taken, filled from host memory, and that is freed.
  absl::Status MoveToDevice();
  // Gives everything back, the host copy included.
  absl::Status Drop();

  // Reads every tensor of the HF checkpoint in `model_dir`, rounded to the layout's dtype. Needs
  // mapped pages. NotFound, InvalidArgument or DataLoss name file and tensor; bytes are undefined
  // then.
  absl::Status LoadCheckpoint(const std::string& model_dir, const ModelSpec& spec);

  std::byte* data() const { return device_->data(); }
  int64_t bytes() const { return device_->bytes(); }
  bool mapped() const { return device_->mapped(); }
  bool on_host() const { return host_ != nullptr; }
  int64_t resident_bytes() const { return device_->ResidentBytes(); }

 private:
  WeightStorage(const WeightLayout* layout, Ledger* ledger) : layout_(layout), ledger_(ledger) {}
  void FreeHostCopy();

  const WeightLayout* const layout_;
  Ledger* const ledger_;
  std::unique_ptr<MemoryRegion> device_;
  std::unique_ptr<MemoryRegion> host_;  // only while the weights are parked there
};

}  // namespace tandem
