// Memory that processes of one host share: one process makes and counts it, others map it for
// reading.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include "common/device/device.h"
#include "common/device/ledger.h"
#include "common/process/local_socket.h"

namespace tandem {

// Unmaps and closes when destroyed. Not thread-safe.
class SharedRegion final : public ShareableMemory {
 public:
  // kHuge is for long-lived memory: with huge pages, mapping 256 MiB takes 0.2 ms instead of 9
  // (Linux 6.18). Without huge pages, small ones are used.
  enum class Pages { kSmall, kHuge };

  // Makes at least `bytes` of zeros, readable and writable, with all pages allocated. `ledger` may
  // be null; it counts them under `tag` and `location`. ResourceExhausted names tag and bytes.
  static absl::StatusOr<std::unique_ptr<SharedRegion>> Create(
      const std::string& tag, int64_t bytes, Ledger* ledger, Location location, Pages pages);
  // kReadWrite is for memory that is only read but that a GPU's driver pins as writable.
  enum class Access { kRead, kReadWrite };
  // Maps `bytes` that another process made, from the descriptor that it passed. `ledger` (may be
  // null) excludes them from this process's memory, as the other process counts them.
  // InvalidArgument: fewer bytes, or not sealed against shrinking.
  static absl::StatusOr<std::unique_ptr<SharedRegion>> MapForeign(UniqueFd fd,
                                                                  int64_t bytes,
                                                                  Ledger* ledger,
                                                                  Access access = Access::kRead);
  ~SharedRegion() override;

  std::byte* data() const override { return data_; }
  int64_t bytes() const override { return bytes_; }
  int fd() const override { return fd_.get(); }

 private:
  SharedRegion(UniqueFd fd, int64_t bytes) : fd_(std::move(fd)), bytes_(bytes) {}
  absl::Status Map(int protection);

  const UniqueFd fd_;
  const int64_t bytes_;
  std::byte* data_ = nullptr;
  // The ledger that the destructor updates; null: none.
  Ledger* owner_ = nullptr;
  Ledger* guest_ = nullptr;
  std::string tag_;
  Location location_ = Location::kDevice;
};

// Files in memory that processes of one host share by passing their descriptors. Makes an unnamed
// file of `bytes` in memory, sealed against resizing, with all pages allocated. It lives as long as
// a descriptor or mapping of it. `huge_pages` uses huge pages if the kernel can, which pays for
// long-lived memory. ResourceExhausted names `name` and bytes.
absl::StatusOr<UniqueFd> CreateSharedMemory(const std::string& name,
                                            int64_t bytes,
                                            bool huge_pages = false);
// Checks that `fd` is such a file of at least `bytes`, so that touching it can never fault.
absl::Status CheckSharedMemory(int fd, int64_t bytes);

}  // namespace tandem
