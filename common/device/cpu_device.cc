// Memory of the host: of a CPU worker, and what a GPU copies from and to. HostDevice() hands it
// out.
#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <sys/mman.h>
#include <unistd.h>

#include "common/base/check.h"
#include "common/base/numeric.h"
#include "common/base/status.h"
#include "common/device/device.h"
#include "common/device/device_memory.h"
#include "common/device/shared_region.h"

namespace tandem {
namespace {

constexpr int kReserveFlags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;

absl::Status CannotMap(const std::string& tag, int64_t bytes, const std::string& reason) {
  return MakeStatus(absl::StatusCode::kResourceExhausted,
                    "memory region {}: cannot get {} bytes ({} MiB): {}; use a smaller model, KV "
                    "pool or batch, or give the process more memory",
                    tag, bytes, bytes >> 20, reason);
}

// Anonymous memory of the process, for the regions of a CPU worker and for a GPU's pinned memory.
class CpuRegion final : public MemoryRegion {
 public:
  // 2 MiB aligned. `location`: device or host, for the ledger. InvalidArgument: no bytes;
  // ResourceExhausted names tag and bytes.
  static absl::StatusOr<std::unique_ptr<MemoryRegion>> Reserve(const std::string& tag,
                                                               int64_t bytes,
                                                               Ledger* ledger,
                                                               Location location);
  // Takes ownership of `bytes` of reserved addresses at `data`.
  CpuRegion(std::string tag, Location location, std::byte* data, int64_t bytes, Ledger* ledger)
      : MemoryRegion(std::move(tag), data, bytes), location_(location), ledger_(ledger) {}
  ~CpuRegion() override;

  // Huge pages are advised; the pages themselves appear at first touch.
  absl::Status Map() override;
  absl::Status Release() override;
  // As the system reports them.
  int64_t ResidentBytes() const override;

 private:
  const Location location_;
  Ledger* const ledger_;
};

absl::StatusOr<std::unique_ptr<MemoryRegion>> CpuRegion::Reserve(const std::string& tag,
                                                                 int64_t bytes,
                                                                 Ledger* ledger,
                                                                 Location location) {
  if (bytes <= 0) return InvalidArgument("memory region {}: {} bytes were requested", tag, bytes);
  if (bytes > (int64_t{1} << 46)) return CannotMap(tag, bytes, "no machine has such addresses");
  const int64_t rounded = RoundUp(bytes, kHugePageBytes);
  // Reserves one huge page more than needed, so that an aligned range fits inside, and unmaps both
  // ends.
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
  // Pages are allocated at first touch, where the system would kill the process instead of
  // refusing: check first.
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
  // Replaces the mapping by a fresh inaccessible one, which frees its pages at once.
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

// On a host, the memory that arrays are offloaded to is the device's memory: nothing is copied.
class HostStream final : public OffloadStream {
 public:
  HostStream(std::vector<Array> arrays, std::vector<Window> windows)
      : arrays_(std::move(arrays)), windows_(std::move(windows)) {}
  absl::StatusOr<std::vector<std::byte*>> Open(size_t window) override {
    std::vector<std::byte*> places;
    for (const Array& array : arrays_) places.push_back(array.home + windows_[window].offset);
    return places;
  }
  absl::Status Close(size_t /*window*/) override { return absl::OkStatus(); }
  absl::Status Finish() override { return absl::OkStatus(); }

 private:
  const std::vector<Array> arrays_;
  const std::vector<Window> windows_;
};

// On a host, copies are done at once.
class HostUploads final : public UploadStream {
 public:
  absl::Status Begin() override { return absl::OkStatus(); }
  absl::Status Copy(void* to, const void* from, int64_t bytes) override {
    if (bytes > 0) std::memcpy(to, from, static_cast<size_t>(bytes));
    return absl::OkStatus();
  }
  absl::Status Join() override { return absl::OkStatus(); }
};

class CpuDevice final : public Device {
 public:
  bool is_host() const override { return true; }
  std::string name() const override { return "CPU"; }
  DriverMemory Memory() const override { return {}; }
  absl::Status UseOnThisThread() override { return absl::OkStatus(); }
  absl::StatusOr<std::unique_ptr<MemoryRegion>> Reserve(const std::string& tag,
                                                        int64_t bytes,
                                                        Ledger* ledger) override {
    return CpuRegion::Reserve(tag, bytes, ledger, Location::kDevice);
  }
  absl::StatusOr<std::unique_ptr<ShareableMemory>> ReserveShareable(const std::string& tag,
                                                                    int64_t bytes,
                                                                    Ledger* ledger) override {
    return SharedRegion::Create(tag, bytes, ledger, Location::kDevice, SharedRegion::Pages::kHuge);
  }
  absl::StatusOr<std::unique_ptr<MemoryRegion>> ReserveHost(const std::string& tag,
                                                            int64_t bytes,
                                                            Ledger* ledger) override {
    return CpuRegion::Reserve(tag, bytes, ledger, Location::kHost);
  }
  absl::StatusOr<std::unique_ptr<OffloadStream>> StreamThrough(
      std::vector<OffloadStream::Array> arrays,
      std::vector<OffloadStream::Window> windows,
      Ledger* /*ledger*/) override {
    return std::make_unique<HostStream>(std::move(arrays), std::move(windows));
  }
  absl::StatusOr<std::unique_ptr<UploadStream>> OpenUploads() override {
    return std::make_unique<HostUploads>();
  }
  void Copy(void* to, const void* from, int64_t bytes) override {
    std::memcpy(to, from, static_cast<size_t>(bytes));
  }
  void Zero(void* to, int64_t bytes) override { std::memset(to, 0, static_cast<size_t>(bytes)); }
  absl::Status Synchronize() override { return absl::OkStatus(); }
};

}  // namespace

Device* HostDevice() {
  static CpuDevice device;
  return &device;
}

}  // namespace tandem
