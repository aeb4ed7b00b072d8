// Memory that a trainer gives back while others use its device.
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

// `released` is what a region's Release said. That the device does not show its bytes as free in
// time, a GPU's FailedPrecondition after which the pages are given back all the same
// (common/device/cuda/cuda_regions.h), is logged and no error: a lost rollout that starts beside
// its trainer takes memory at any moment. What is missing then is part of what the pair's ledgers
// do not count.
absl::Status LogReleaseFailure(const absl::Status& released);

// Elements of a rank's shard, on the device or offloaded.

// Offloaded elements of a CPU worker lie in a file, those of a GPU in pinned host memory. Not
// thread-safe.
class ShardArray {
 public:
  // Zeros. `offload_dir`: where a file goes; empty for memory of the device. `device` and `ledger`
  // outlive the array. Errors as the regions'.
  static absl::StatusOr<std::unique_ptr<ShardArray>> Create(Device* device,
                                                            const std::string& tag,
                                                            int64_t elements,
                                                            int64_t element_bytes,
                                                            const std::string& offload_dir,
                                                            Ledger* ledger);
  // Where ops may read and write, wherever it is.
  std::byte* data() const { return file_ == nullptr ? memory_->data() : file_->data(); }
  bool offloaded() const { return offloaded_; }
  // Whether the host, too, may read and write there.
  bool in_host_memory() const { return in_host_memory_; }
  FileRegion* file() const { return file_.get(); }  // null: in memory
  // What was touched of a file leaves the process: all of it, or the pages of a range of bytes.
  void Evict();
  void Evict(int64_t offset, int64_t bytes);

 private:
  std::unique_ptr<MemoryRegion> memory_;
  std::unique_ptr<FileRegion> file_;
  bool offloaded_ = false;
  bool in_host_memory_ = true;
};

// Host memory between a device and what only the host can do: read files, write them, talk to other
// hosts' memory.

// Memory that both the host and the ops reach, mapped: the device's own on a CPU, else the host's,
// pinned. Errors as the regions'.
absl::StatusOr<std::unique_ptr<MemoryRegion>> TakeHostMemory(Device* device,
                                                             const std::string& tag,
                                                             int64_t bytes,
                                                             Ledger* ledger);

// One buffer under the tag gather, which grows with the largest range so far; none where the host
// reads the device's memory itself. Not thread-safe.
class HostStaging {
 public:
  // Both outlive it.
  HostStaging(Device* device, Ledger* ledger) : device_(device), ledger_(ledger) {}

  // Room for `bytes`, which is what the last call gave.
  absl::StatusOr<std::byte*> Room(int64_t bytes);
  // Bytes of the device's memory, in the buffer.
  absl::StatusOr<const std::byte*> Fetch(const void* from, int64_t bytes);
  // The same where the device has memory of its own, else where they lie.
  absl::StatusOr<const float*> Floats(const float* from, int64_t count);
  void Release() { memory_.reset(); }

 private:
  Device* const device_;
  Ledger* const ledger_;
  std::unique_ptr<MemoryRegion> memory_;
};

}  // namespace tandem
