// Memory of a device that another process may read where it lies.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tandem {

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

}  // namespace tandem
