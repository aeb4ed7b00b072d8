// Streams arrays that are offloaded to files through a CPU worker's memory, a window at a time:
// while the caller works on one window, the previous one is written back and the next one is read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include <absl/status/statusor.h>

#include "common/base/bounded_queue.h"
#include "common/device/device.h"
#include "common/device/file_region.h"
#include "common/process/threads.h"

namespace tandem {

// A range of consecutive elements of a shard.
struct ShardWindow {
  int64_t first = 0;
  int64_t count = 0;
};
// Windows of at most `window` elements that cover [0, elements).
std::vector<ShardWindow> CutWindows(int64_t elements, int64_t window);

// Not thread-safe. A separate thread moves the windows, unless there are no arrays. Holds two
// buffers in memory for each array, as large as the largest window, during its life.
class OffloadWindows final : public OffloadStream {
 public:
  struct Array {
    std::string tag;             // of its buffers in the ledger
    FileRegion* home = nullptr;  // the file, with fp32 elements; outlives the stream
  };
  // Starts reading the first windows. Without arrays, no call has an effect. ResourceExhausted: no
  // memory for the buffers.
  static absl::StatusOr<std::unique_ptr<OffloadWindows>> Create(std::vector<Array> arrays,
                                                                std::vector<ShardWindow> windows,
                                                                Ledger* ledger);
  // Waits until all windows are written back.
  ~OffloadWindows() override;
  OffloadWindows(const OffloadWindows&) = delete;
  OffloadWindows& operator=(const OffloadWindows&) = delete;

  // The calls below return no errors.
  absl::StatusOr<std::vector<std::byte*>> Open(size_t window) override;
  absl::Status Close(size_t window) override;
  absl::Status Finish() override;

 private:
  OffloadWindows(std::vector<Array> arrays, std::vector<ShardWindow> windows)
      : arrays_(std::move(arrays)), windows_(std::move(windows)) {}
  std::byte* Buffer(size_t array, size_t window) const;
  void Read(size_t window) const;
  void WriteBack(size_t window) const;

  // Queues a transfer for the buffer of `window`.
  void Submit(size_t window, std::function<void()> transfer);
  void Loop();

  const std::vector<Array> arrays_;
  const std::vector<ShardWindow> windows_;
  std::vector<std::unique_ptr<MemoryRegion>> buffers_;  // two per array, array by array
  // The last transfer of each buffer; windows alternate between the buffers.
  std::future<void> transfers_[2];
  BoundedQueue<std::packaged_task<void()>> queue_{2};  // at most one transfer per buffer
  NamedThread thread_;
};

}  // namespace tandem
