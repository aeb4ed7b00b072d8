// Memory that processes of one host share: one makes and counts it, others map it to read.
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
  // kHuge: for long-lived memory; asks the kernel for huge pages, which makes a mapping of 256 MiB
  // a matter of 0.2 ms instead of 9 (Linux 6.18). Where it has none small ones serve.
  enum class Pages { kSmall, kHuge };

  // At least `bytes` of zeros, readable and writable, with pages at once. `ledger` may be null; it
  // counts them under `tag` and `location`. ResourceExhausted names tag and bytes.
  static absl::StatusOr<std::unique_ptr<SharedRegion>> Create(
      const std::string& tag, int64_t bytes, Ledger* ledger, Location location, Pages pages);
  // kReadWrite: for memory that is only read, but that a GPU's driver pins as it is written.
  enum class Access { kRead, kReadWrite };
  // `bytes` that another process made, from the descriptor that it passed. `ledger` (may
  // be null) leaves them out of this process's memory: the other counts them. InvalidArgument:
  // fewer bytes, or not sealed against shrinking.
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
  // What the destructor undoes; null: nothing.
  Ledger* owner_ = nullptr;
  Ledger* guest_ = nullptr;
  std::string tag_;
  Location location_ = Location::kDevice;
};

// Files in memory that processes of one host share by passing their descriptors.

// An unnamed file in memory of `bytes`, sealed against resizing, pages allocated at once: it lives
// as long as a descriptor or mapping of it. `huge_pages`: in huge pages where the kernel can, which
// pays for long-lived memory. ResourceExhausted names `name` and bytes.
absl::StatusOr<UniqueFd> CreateSharedMemory(const std::string& name,
                                            int64_t bytes,
                                            bool huge_pages = false);
// Checks that `fd` is such a file of at least `bytes`: touching it can never fault.
absl::Status CheckSharedMemory(int fd, int64_t bytes);

}  // namespace tandem
