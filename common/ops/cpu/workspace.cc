#include "common/ops/cpu/workspace.h"

#include <algorithm>

#include <sys/mman.h>

#include "common/base/check.h"

namespace tandem {
namespace {
constexpr int64_t kHugePage = int64_t{2} << 20;
}

std::byte* Workspace::Bytes(int64_t bytes) {
  if (bytes <= capacity_) return memory_.get();
  // Scratch that grows with the context grows in steps of half its size.
  if (capacity_ > 0) bytes = std::max(bytes, capacity_ + capacity_ / 2);
  memory_.reset();
  const int64_t alignment = bytes >= kHugePage ? kHugePage : 64;
  const int64_t rounded = (bytes + alignment - 1) / alignment * alignment;
  void* memory = std::aligned_alloc(static_cast<size_t>(alignment), static_cast<size_t>(rounded));
  TANDEM_CHECK(memory != nullptr, "no memory for the scratch space of an op");
  // Only advice: pages of 4 KiB work too.
  if (alignment == kHugePage) madvise(memory, static_cast<size_t>(rounded), MADV_HUGEPAGE);
  memory_.reset(static_cast<std::byte*>(memory));
  capacity_ = rounded;
  return memory_.get();
}

}  // namespace tandem
