// Where a worker's tensors live and its ops run: the host itself, or a GPU.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include "common/device/ledger.h"
#include "common/device/memory_region.h"
#include "common/device/offload_stream.h"
#include "common/device/shareable_memory.h"
#include "common/device/upload_stream.h"

namespace tandem {

// Not thread-safe: the engine thread's. What is enqueued here and what the ops do happens in the
// order of the calls; on a host at once.
class Device {
 public:
  virtual ~Device() = default;

  // Whether its memory is the host's: addresses may be dereferenced, files mapped.
  virtual bool is_host() const = 0;
  // "CPU" or the GPU's name and number, for the log.
  virtual std::string name() const = 0;
  // What its driver says now; zeros if that fails. Thread-safe.
  virtual DriverMemory Memory() const = 0;
  // To be called once by another thread than the one that made it, before it uses the device.
  virtual absl::Status UseOnThisThread() = 0;

  // Memory of the device, counted under `tag`; MemoryRegion says the rest.
  virtual absl::StatusOr<std::unique_ptr<MemoryRegion>> Reserve(const std::string& tag,
                                                                int64_t bytes,
                                                                Ledger* ledger) = 0;
  // Zeros of the device, counted under `tag` as long as they are held, that another process may
  // read (common/weights/weight_transport.h). `ledger` may be null; it and the device outlive them.
  // ResourceExhausted names tag and bytes.
  virtual absl::StatusOr<std::unique_ptr<ShareableMemory>> ReserveShareable(const std::string& tag,
                                                                            int64_t bytes,
                                                                            Ledger* ledger) = 0;
  // Memory of the host that the device copies to and from at full speed: for what sleeps.
  virtual absl::StatusOr<std::unique_ptr<MemoryRegion>> ReserveHost(const std::string& tag,
                                                                    int64_t bytes,
                                                                    Ledger* ledger) = 0;

  // The windows of arrays that live in ReserveHost memory, on their way through the device's; the
  // first ones come in at once. `ledger` (may be null) outlives the stream and counts its buffers;
  // a host needs none. ResourceExhausted: no memory for them.
  virtual absl::StatusOr<std::unique_ptr<OffloadStream>> StreamThrough(
      std::vector<OffloadStream::Array> arrays,
      std::vector<OffloadStream::Window> windows,
      Ledger* ledger) = 0;

  // Uploads beside the device's work; on a host, copies at once.
  virtual absl::StatusOr<std::unique_ptr<UploadStream>> OpenUploads() = 0;

  // Either side may be the host's or the device's. What is read from ordinary host memory may be
  // reused at once; what is read from ReserveHost's only after Synchronize, since a device reads it
  // when the copy's turn comes. What is written to host memory is there after Synchronize.
  virtual void Copy(void* to, const void* from, int64_t bytes) = 0;
  virtual void Zero(void* to, int64_t bytes) = 0;
  // Waits until everything so far is done; the first error of it.
  virtual absl::Status Synchronize() = 0;
};

// The host's memory and cores: one object without state, for all threads.
Device* HostDevice();

}  // namespace tandem
