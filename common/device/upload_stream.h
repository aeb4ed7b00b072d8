// Copies from the host to the device beside the device's work: what the next piece of work needs
// comes in while this one computes.
#pragma once

#include <cstdint>

#include <absl/status/status.h>

namespace tandem {

// Device::OpenUploads makes them. For the thread of the device. Errors are the device's.
class UploadStream {
 public:
  // Waits for the copies.
  virtual ~UploadStream() = default;

  // The copies that follow come after all work that was enqueued until now, and wait for nothing
  // that is enqueued later.
  virtual absl::Status Begin() = 0;
  // `from` is in a mapped region of Device::ReserveHost and stays as it is until after Join.
  virtual absl::Status Copy(void* to, const void* from, int64_t bytes) = 0;
  // Work that is enqueued from now on comes after the copies.
  virtual absl::Status Join() = 0;
};

}  // namespace tandem
