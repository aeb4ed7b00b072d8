// Elements of a rank's shard, on the device or offloaded.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include <absl/status/statusor.h>

#include "common/device/device.h"
#include "common/device/file_region.h"

namespace tandem {

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

}  // namespace tandem
