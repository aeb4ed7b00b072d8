// Offloaded arrays on their way through a device, a window at a time: while one window is worked
// on, the one before it goes home and the next one comes in.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

namespace tandem {

// Device::StreamThrough makes them. For the thread of the device. Errors are the device's; after
// one, the arrays at home may hold some of the new windows.
class OffloadStream {
 public:
  struct Array {
    std::string tag;            // of its buffers in the ledger
    std::byte* home = nullptr;  // in a mapped region of Device::ReserveHost; outlives the stream
  };
  // Consecutive bytes, at the same place of each array.
  struct Window {
    int64_t offset = 0;
    int64_t bytes = 0;
  };

  // Waits for the copies.
  virtual ~OffloadStream() = default;

  // Where the window of every array lies on the device, in the order of the arrays, for work that
  // is enqueued from now on. Windows are opened in ascending order, each closed before the next but
  // one is opened.
  virtual absl::StatusOr<std::vector<std::byte*>> Open(size_t window) = 0;
  // What the work enqueued until here makes of the window goes home.
  virtual absl::Status Close(size_t window) = 0;
  // Waits until all closed windows are at home, to be read by the host.
  virtual absl::Status Finish() = 0;
};

}  // namespace tandem
