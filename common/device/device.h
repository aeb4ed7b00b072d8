// Long-lived memory of a device: addresses are reserved once and never move; pages are mapped and
// released.
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

// Made by Device::Reserve and ReserveHost: `bytes` are rounded up to whole pages of 2 MiB, of which
// none is mapped yet. The ledger (may be null) outlives the region and counts bytes() under its tag
// while it is mapped. Not thread-safe.
class MemoryRegion {
 public:
  // Releases the pages and the addresses.
  virtual ~MemoryRegion() = default;
  MemoryRegion(const MemoryRegion&) = delete;
  MemoryRegion& operator=(const MemoryRegion&) = delete;

  // Makes the range readable and writable by the device; all bytes are zero. Does nothing if
  // mapped. ResourceExhausted if the device has less than bytes() available, naming tag, bytes and
  // available bytes; the region is then as it was.
  virtual absl::Status Map() = 0;
  // Returns the pages to the system and makes the range inaccessible. Does nothing if not mapped.
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

// Streams offloaded arrays through a device, one window at a time: while the device works on one
// window, the previous one is copied home and the next one comes in. Made by Device::StreamThrough.
// For the thread of the device. Errors are the device's; after one, the arrays at home may contain
// some new windows.
class OffloadStream {
 public:
  struct Array {
    std::string tag;            // of its buffers in the ledger
    std::byte* home = nullptr;  // in a mapped region of Device::ReserveHost; outlives the stream
  };
  // A range of bytes, the same in every array.
  struct Window {
    int64_t offset = 0;
    int64_t bytes = 0;
  };

  // Waits for the copies.
  virtual ~OffloadStream() = default;

  // The address of every array's window on the device, in the order of the arrays, for work that is
  // enqueued from now on. Windows are opened in ascending order; a window must be closed before the
  // next but one is opened.
  virtual absl::StatusOr<std::vector<std::byte*>> Open(size_t window) = 0;
  // Copies the window home after the work that is enqueued so far.
  virtual absl::Status Close(size_t window) = 0;
  // Waits until all closed windows are home, where the host may read them.
  virtual absl::Status Finish() = 0;
};

// Copies from the host to the device in parallel with the device's work: the data of the next piece
// of work is copied while the device computes this one. Made by Device::OpenUploads. For the thread
// of the device. Errors are the device's.
class UploadStream {
 public:
  // Waits for the copies.
  virtual ~UploadStream() = default;

  // The copies that follow start after all work that is enqueued so far, and do not wait for work
  // that is enqueued later.
  virtual absl::Status Begin() = 0;
  // `from` is in a mapped region of Device::ReserveHost and must not change until after Join.
  virtual absl::Status Copy(void* to, const void* from, int64_t bytes) = 0;
  // Work that is enqueued from now on starts after the copies.
  virtual absl::Status Join() = 0;
};

// Memory of a device that another process may read in place. It keeps its addresses and pages for
// its whole life. Not thread-safe.
class ShareableMemory {
 public:
  virtual ~ShareableMemory() = default;
  ShareableMemory(const ShareableMemory&) = delete;
  ShareableMemory& operator=(const ShareableMemory&) = delete;

  virtual std::byte* data() const = 0;
  virtual int64_t bytes() const = 0;
  // The descriptor that the other process maps; -1 for a GPU's memory, which is opened by the
  // driver's handle.
  virtual int fd() const = 0;

 protected:
  ShareableMemory() = default;
};

// The place of a worker's tensors and ops: the host itself, or a GPU. Not thread-safe: used by the
// engine thread. Enqueued work and the ops run in the order of the calls; on a host, at once.
class Device {
 public:
  virtual ~Device() = default;

  // Whether its memory is the host's, so that addresses may be dereferenced and files mapped.
  virtual bool is_host() const = 0;
  // "CPU" or the GPU's name and number, for the log.
  virtual std::string name() const = 0;
  // What the driver reports now; zeros if it fails. Thread-safe.
  virtual DriverMemory Memory() const = 0;
  // A thread other than the one that made the device must call it once, before it uses the device.
  virtual absl::Status UseOnThisThread() = 0;

  // Memory of the device, counted under `tag`; see MemoryRegion.
  virtual absl::StatusOr<std::unique_ptr<MemoryRegion>> Reserve(const std::string& tag,
                                                                int64_t bytes,
                                                                Ledger* ledger) = 0;
  // Zeroed memory of the device that another process may read (common/weights/weight_transport.h),
  // counted under `tag` while it lives. `ledger` may be null; it and the device outlive the memory.
  // ResourceExhausted names tag and bytes.
  virtual absl::StatusOr<std::unique_ptr<ShareableMemory>> ReserveShareable(const std::string& tag,
                                                                            int64_t bytes,
                                                                            Ledger* ledger) = 0;
  // Host memory that the device copies to and from at full speed, for arrays that sleep.
  virtual absl::StatusOr<std::unique_ptr<MemoryRegion>> ReserveHost(const std::string& tag,
                                                                    int64_t bytes,
                                                                    Ledger* ledger) = 0;

  // Streams windows of arrays that are in ReserveHost memory through the device; the first windows
  // are copied in at once. `ledger` (may be null) outlives the stream and counts its buffers; a
  // host needs none. ResourceExhausted: there is no memory for the buffers.
  virtual absl::StatusOr<std::unique_ptr<OffloadStream>> StreamThrough(
      std::vector<OffloadStream::Array> arrays,
      std::vector<OffloadStream::Window> windows,
      Ledger* ledger) = 0;

  // Copies to the device in parallel with its work; on a host, copies at once.
  virtual absl::StatusOr<std::unique_ptr<UploadStream>> OpenUploads() = 0;

  // Either side may be host or device memory. Ordinary host memory that is read may be reused at
  // once; memory of ReserveHost only after Synchronize, since the device reads it in the order of
  // the calls. Host memory that is written is valid after Synchronize.
  virtual void Copy(void* to, const void* from, int64_t bytes) = 0;
  virtual void Zero(void* to, int64_t bytes) = 0;
  // Waits until all work so far is done; returns its first error.
  virtual absl::Status Synchronize() = 0;
};

// The host's memory and cores: one object without state, for all threads.
Device* HostDevice();

}  // namespace tandem
