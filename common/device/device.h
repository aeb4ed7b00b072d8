// Long-lived memory of a device: addresses are reserved once and keep their place for life; pages
// come and go.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include "common/device/ledger.h"

namespace tandem {

// Device::Reserve and ReserveHost make them: `bytes` rounded up to whole pages of 2 MiB, no pages
// yet. The ledger (may be null) outlives the region and counts bytes() under its tag while it is
// mapped. Not thread-safe.
class MemoryRegion {
 public:
  // Releases.
  virtual ~MemoryRegion() = default;
  MemoryRegion(const MemoryRegion&) = delete;
  MemoryRegion& operator=(const MemoryRegion&) = delete;

  // Makes the range readable and writable by the device; all bytes are zero. Does nothing if
  // mapped. ResourceExhausted if the device has less than bytes() available, naming tag, bytes and
  // available bytes; the region is then as it was.
  virtual absl::Status Map() = 0;
  // Gives the pages back to the system and makes the range unreadable. Does nothing if not mapped.
  virtual absl::Status Release() = 0;
  // Bytes of the range that have pages now.
  virtual int64_t ResidentBytes() const = 0;

  const std::string& tag() const { return tag_; }
  std::byte* data() const { return data_; }  // the same for life
  int64_t bytes() const { return bytes_; }
  bool mapped() const { return mapped_; }

 protected:
  MemoryRegion(std::string tag, std::byte* data, int64_t bytes)
      : tag_(std::move(tag)), data_(data), bytes_(bytes) {}
  void set_mapped(bool mapped) { mapped_ = mapped; }

 private:
  const std::string tag_;
  std::byte* const data_;
  const int64_t bytes_;
  bool mapped_ = false;
};

// Offloaded arrays on their way through a device, a window at a time: while one window is worked
// on, the one before it goes home and the next one comes in.

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

  // The address of every array's window on the device, in the order of the arrays, for work that
  // is enqueued from now on. Windows are opened in ascending order, each closed before the next but
  // one is opened.
  virtual absl::StatusOr<std::vector<std::byte*>> Open(size_t window) = 0;
  // The window goes home as the work enqueued until here leaves it.
  virtual absl::Status Close(size_t window) = 0;
  // Waits until all closed windows are at home, to be read by the host.
  virtual absl::Status Finish() = 0;
};

// Copies from the host to the device in parallel with the device's work: the data of the next piece
// of work comes in while this one computes.

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

// Memory of a device that another process may read in place.

// Held from first to last: addresses and pages stay. Not thread-safe.
class ShareableMemory {
 public:
  virtual ~ShareableMemory() = default;
  ShareableMemory(const ShareableMemory&) = delete;
  ShareableMemory& operator=(const ShareableMemory&) = delete;

  virtual std::byte* data() const = 0;
  virtual int64_t bytes() const = 0;
  // What the other process maps; -1 of a GPU's memory, which it opens by the driver's handle.
  virtual int fd() const = 0;

 protected:
  ShareableMemory() = default;
};

// Where a worker's tensors live and its ops run: the host itself, or a GPU.

// Not thread-safe: the engine thread's. Enqueued work and the ops run in the order of the
// calls; on a host at once.
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
  // Memory of the host that the device copies to and from at full speed, for arrays that sleep.
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

  // Uploads in parallel with the device's work; on a host, copies at once.
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
