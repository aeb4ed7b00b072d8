#include "common/device/cpu_region.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include <sys/mman.h>
#include <unistd.h>

#include "common/base/check.h"
#include "common/base/round_up.h"
#include "common/base/status_macros.h"
#include "common/device/device_memory.h"

namespace tandem {
namespace {

constexpr int kReserveFlags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;

absl::Status CannotMap(const std::string& tag, int64_t bytes, const std::string& reason) {
  return MakeStatus(absl::StatusCode::kResourceExhausted,
                    "memory region {}: cannot get {} bytes ({} MiB): {}; use a smaller model, KV "
                    "pool or batch, or give the process more memory",
                    tag, bytes, bytes >> 20, reason);
}

}  // namespace

absl::StatusOr<std::unique_ptr<MemoryRegion>> CpuRegion::Reserve(const std::string& tag,
                                                                 int64_t bytes,
                                                                 Ledger* ledger,
                                                                 Location location) {
  if (bytes <= 0) return InvalidArgument("memory region {}: {} bytes asked for", tag, bytes);
  if (bytes > (int64_t{1} << 46)) return CannotMap(tag, bytes, "no machine has such addresses");
  const int64_t rounded = RoundUp(bytes, kHugePageBytes);
  // One huge page more, so that an aligned range lies inside; the ends are given back.
  void* raw = mmap(nullptr, rounded + kHugePageBytes, PROT_NONE, kReserveFlags, -1, 0);
  if (raw == MAP_FAILED) return CannotMap(tag, bytes, strerror(errno));
  std::byte* const start = static_cast<std::byte*>(raw);
  const int64_t head =
      (kHugePageBytes - reinterpret_cast<uintptr_t>(start) % kHugePageBytes) % kHugePageBytes;
  if (head > 0) munmap(start, head);
  if (head < kHugePageBytes) munmap(start + head + rounded, kHugePageBytes - head);
  return std::unique_ptr<MemoryRegion>(new CpuRegion(tag, location, start + head, rounded, ledger));
}

CpuRegion::~CpuRegion() {
  if (ledger_ != nullptr) ledger_->RemoveRegion(this);
  munmap(data(), bytes());
}

absl::Status CpuRegion::Map() {
  if (mapped()) return absl::OkStatus();
  // Pages come at first touch, where a refusal would be a kill: ask before.
  const int64_t available = AvailableMemoryBytes();
  if (bytes() > available) {
    return CannotMap(tag(), bytes(), fmt::format("{} MiB are available", available >> 20));
  }
  void* placed =
      mmap(data(), bytes(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
  if (placed == MAP_FAILED) return CannotMap(tag(), bytes(), strerror(errno));
  TANDEM_CHECK(placed == data(), "memory region " + tag() + " moved");
  madvise(data(), bytes(), MADV_HUGEPAGE);  // refused where the kernel has none: slower, not wrong
  set_mapped(true);
  if (ledger_ != nullptr) {
    ledger_->AddRegion(this, tag(), location_, bytes(), [this] { return ResidentBytes(); });
  }
  return absl::OkStatus();
}

absl::Status CpuRegion::Release() {
  if (!mapped()) return absl::OkStatus();
  // A fresh inaccessible mapping in place of the old one: its pages are freed at once.
  void* placed = mmap(data(), bytes(), PROT_NONE, kReserveFlags | MAP_FIXED, -1, 0);
  if (placed == MAP_FAILED) {
    return Internal("memory region {}: cannot release {} bytes: {}", tag(), bytes(),
                    strerror(errno));
  }
  TANDEM_CHECK(placed == data(), "memory region " + tag() + " moved");
  set_mapped(false);
  if (ledger_ != nullptr) ledger_->RemoveRegion(this);
  return absl::OkStatus();
}

int64_t CpuRegion::ResidentBytes() const {
  const int64_t page = sysconf(_SC_PAGESIZE);
  std::array<unsigned char, 16384> present;
  const int64_t step = static_cast<int64_t>(present.size()) * page;
  int64_t pages = 0;
  for (int64_t at = 0; at < bytes(); at += step) {
    const int64_t piece = std::min(step, bytes() - at);
    if (mincore(data() + at, piece, present.data()) != 0) return 0;
    for (int64_t i = 0; i < piece / page; ++i) pages += present[static_cast<size_t>(i)] & 1;
  }
  return pages * page;
}

}  // namespace tandem
