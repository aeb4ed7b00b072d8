#include "common/device/memory_region.h"

#include <cerrno>
#include <cstring>
#include <vector>

#include <sys/mman.h>
#include <unistd.h>

#include "common/base/check.h"
#include "common/base/status_macros.h"
#include "common/device/device_memory.h"

namespace tandem {
namespace {

constexpr int64_t kHugePageBytes = int64_t{2} << 20;
constexpr int kReserveFlags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;

absl::Status CannotGive(const std::string& tag, int64_t bytes, const std::string& reason) {
  return MakeStatus(absl::StatusCode::kResourceExhausted,
                    "memory region {}: cannot get {} bytes ({} MiB): {}; use a smaller model, KV "
                    "pool or batch, or give the process more memory",
                    tag, bytes, bytes >> 20, reason);
}

}  // namespace

absl::StatusOr<std::unique_ptr<MemoryRegion>> MemoryRegion::Reserve(const std::string& tag,
                                                                    int64_t bytes,
                                                                    Ledger* ledger) {
  if (bytes <= 0) return InvalidArgument("memory region {}: {} bytes asked for", tag, bytes);
  if (bytes > (int64_t{1} << 46)) return CannotGive(tag, bytes, "no machine has such addresses");
  const int64_t rounded = (bytes + kHugePageBytes - 1) / kHugePageBytes * kHugePageBytes;
  // One huge page more, so that an aligned range lies inside; the ends are given back.
  void* raw = mmap(nullptr, rounded + kHugePageBytes, PROT_NONE, kReserveFlags, -1, 0);
  if (raw == MAP_FAILED) return CannotGive(tag, bytes, strerror(errno));
  std::byte* const start = static_cast<std::byte*>(raw);
  const int64_t head =
      (kHugePageBytes - reinterpret_cast<uintptr_t>(start) % kHugePageBytes) % kHugePageBytes;
  if (head > 0) munmap(start, head);
  if (head < kHugePageBytes) munmap(start + head + rounded, kHugePageBytes - head);
  return std::unique_ptr<MemoryRegion>(new MemoryRegion(tag, start + head, rounded, ledger));
}

MemoryRegion::~MemoryRegion() {
  if (mapped_ && ledger_ != nullptr) ledger_->Add(tag_, Location::kDevice, -bytes_);
  munmap(data_, bytes_);
}

absl::Status MemoryRegion::Map() {
  if (mapped_) return absl::OkStatus();
  // Pages come at first touch, where a refusal would be a kill: ask before.
  const int64_t available = AvailableMemoryBytes();
  if (bytes_ > available) {
    return CannotGive(tag_, bytes_, fmt::format("{} MiB are available", available >> 20));
  }
  void* placed =
      mmap(data_, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
  if (placed == MAP_FAILED) return CannotGive(tag_, bytes_, strerror(errno));
  TANDEM_CHECK(placed == data_, "memory region " + tag_ + " moved");
  madvise(data_, bytes_, MADV_HUGEPAGE);  // refused where the kernel has none: slower, not wrong
  mapped_ = true;
  if (ledger_ != nullptr) ledger_->Add(tag_, Location::kDevice, bytes_);
  return absl::OkStatus();
}

absl::Status MemoryRegion::Release() {
  if (!mapped_) return absl::OkStatus();
  // A fresh inaccessible mapping in place of the old one: its pages are freed at once.
  void* placed = mmap(data_, bytes_, PROT_NONE, kReserveFlags | MAP_FIXED, -1, 0);
  if (placed == MAP_FAILED) {
    return Internal("memory region {}: cannot release {} bytes: {}", tag_, bytes_, strerror(errno));
  }
  TANDEM_CHECK(placed == data_, "memory region " + tag_ + " moved");
  mapped_ = false;
  if (ledger_ != nullptr) ledger_->Add(tag_, Location::kDevice, -bytes_);
  return absl::OkStatus();
}

int64_t MemoryRegion::ResidentBytes() const {
  const int64_t page = sysconf(_SC_PAGESIZE);
  std::vector<unsigned char> present(bytes_ / page);
  if (mincore(data_, bytes_, present.data()) != 0) return 0;
  int64_t pages = 0;
  for (const unsigned char flags : present) pages += flags & 1;
  return pages * page;
}

}  // namespace tandem
