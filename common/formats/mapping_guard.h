// Keeps a process alive when a mapped file shrinks while it is read: pages after its new end have
// no content, and the kernel ends a process that touches one with SIGBUS. While a guard covers the
// mapping, such a page reads as zeros instead, and the guard records it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace tandem {

// Covers [data, data + bytes), a mapping of whole pages, until it is destroyed; the mapping must
// live longer. Thread-safe. A SIGBUS of any other memory ends the process as before.
class MappingGuard {
 public:
  MappingGuard(const uint8_t* data, size_t bytes);
  ~MappingGuard();
  MappingGuard(const MappingGuard&) = delete;
  MappingGuard& operator=(const MappingGuard&) = delete;

  // Whether a page was touched that the file no longer has.
  bool touched_missing() const { return touched_missing_.load(std::memory_order_acquire); }

 private:
  friend struct MappingGuardSignals;
  const uint8_t* const data_;
  const size_t bytes_;
  std::atomic<bool> touched_missing_ = false;
  size_t slot_;
};

}  // namespace tandem
