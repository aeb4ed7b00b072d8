// Memory that a trainer releases while other processes use its device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include "common/device/device.h"
#include "common/device/file_region.h"

namespace tandem {

// Takes the status of a region's Release. A GPU's FailedPrecondition means that the pages were
// released, but the device did not show them as free in time (common/device/cuda/cuda_regions.h).
// It is logged and turned into OK, as a restarting rollout on the same device may allocate memory
// at any moment; the missing bytes are then among those that the pair's ledgers do not count.
absl::Status LogReleaseFailure(const absl::Status& released);

// Elements of a rank's shard, on the device or offloaded. Offloaded elements are stored in a file
// on a CPU worker, and in pinned host memory on a GPU worker. Not thread-safe.
class ShardArray {
 public:
  // Allocates zeros. `offload_dir`: the folder for the file; empty: not offloaded. `device` and
  // `ledger` outlive the array. Errors as the regions'.
  static absl::StatusOr<std::unique_ptr<ShardArray>> Create(Device* device,
                                                            const std::string& tag,
                                                            int64_t elements,
                                                            int64_t element_bytes,
                                                            const std::string& offload_dir,
                                                            Ledger* ledger);
  // The address that the ops read and write, offloaded or not.
  std::byte* data() const { return file_ == nullptr ? memory_->data() : file_->data(); }
  bool offloaded() const { return offloaded_; }
  // Whether the host can read and write the elements at data(), too.
  bool in_host_memory() const { return in_host_memory_; }
  FileRegion* file() const { return file_.get(); }  // null: in memory
  // Evict the touched pages of a file from the process: all of them, or those of a range of bytes.
  void Evict();
  void Evict(int64_t offset, int64_t bytes);

 private:
  std::unique_ptr<MemoryRegion> memory_;
  std::unique_ptr<FileRegion> file_;
  bool offloaded_ = false;
  bool in_host_memory_ = true;
};

// Allocates and maps memory that both the host and the ops can access: the device's own on a CPU,
// else pinned host memory. It serves as a buffer for work that only the host can do, such as
// reading and writing files. Errors as the regions'.
absl::StatusOr<std::unique_ptr<MemoryRegion>> TakeHostMemory(Device* device,
                                                             const std::string& tag,
                                                             int64_t bytes,
                                                             Ledger* ledger);

// One staging buffer under the tag gather, which grows to the largest range; without a buffer if
// the host can read the device's memory. Not thread-safe.
class HostStaging {
 public:
  // `device` and `ledger` outlive the object.
  HostStaging(Device* device, Ledger* ledger) : device_(device), ledger_(ledger) {}

  // Returns `bytes` of the buffer; invalidates the result of the last call.
  absl::StatusOr<std::byte*> Room(int64_t bytes);
  // Copies bytes of the device's memory to the buffer.
  absl::StatusOr<const std::byte*> Fetch(const void* from, int64_t bytes);
  // The same if the device has its own memory; else returns `from` itself.
  absl::StatusOr<const float*> Floats(const float* from, int64_t count);
  void Release() { memory_.reset(); }

 private:
  Device* const device_;
  Ledger* const ledger_;
  std::unique_ptr<MemoryRegion> memory_;
};

}  // namespace tandem
