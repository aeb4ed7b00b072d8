#include "common/device/shared_region.h"

#include <cerrno>
#include <cstring>

#include <sys/mman.h>

#include "common/base/round_up.h"
#include "common/base/status_macros.h"
#include "common/device/device_memory.h"
#include "common/device/shared_memory.h"

namespace tandem {
namespace {

constexpr int64_t kSmallPage = 4096;

}  // namespace

absl::Status SharedRegion::Map(int protection) {
  constexpr int kFlags = MAP_SHARED | MAP_POPULATE;
  void* at = mmap(nullptr, static_cast<size_t>(bytes_), protection, kFlags, fd_.get(), 0);
  if (at == MAP_FAILED) {
    return MakeStatus(absl::StatusCode::kResourceExhausted,
                      "cannot map {} bytes of shared memory: {}", bytes_, strerror(errno));
  }
  data_ = static_cast<std::byte*>(at);
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<SharedRegion>> SharedRegion::Create(
    const std::string& tag, int64_t bytes, Ledger* ledger, Location location, Pages pages) {
  const int64_t rounded = RoundUp(bytes, pages == Pages::kHuge ? kHugePageBytes : kSmallPage);
  TANDEM_ASSIGN_OR_RETURN(UniqueFd fd, CreateSharedMemory(tag, rounded, pages == Pages::kHuge));
  std::unique_ptr<SharedRegion> region(new SharedRegion(std::move(fd), rounded));
  TANDEM_RETURN_IF_ERROR(region->Map(PROT_READ | PROT_WRITE));
  region->tag_ = tag;
  region->location_ = location;
  region->owner_ = ledger;
  if (ledger != nullptr) ledger->Add(tag, location, rounded);
  return region;
}

absl::StatusOr<std::unique_ptr<SharedRegion>> SharedRegion::MapForeign(UniqueFd fd,
                                                                       int64_t bytes,
                                                                       Ledger* ledger,
                                                                       Access access) {
  TANDEM_RETURN_IF_ERROR(CheckSharedMemory(fd.get(), bytes));
  std::unique_ptr<SharedRegion> region(new SharedRegion(std::move(fd), bytes));
  absl::Status mapped;
  const auto map = [&] {
    mapped = region->Map(access == Access::kRead ? PROT_READ : PROT_READ | PROT_WRITE);
    return mapped.ok();
  };
  if (ledger == nullptr) {
    map();
  } else {
    ledger->ChangeForeign(bytes, map);
  }
  TANDEM_RETURN_IF_ERROR(mapped);
  region->guest_ = ledger;
  return region;
}

SharedRegion::~SharedRegion() {
  const auto unmap = [this] {
    return data_ != nullptr && munmap(data_, static_cast<size_t>(bytes_)) == 0;
  };
  if (guest_ == nullptr) {
    unmap();
  } else {
    guest_->ChangeForeign(-bytes_, unmap);
  }
  if (owner_ != nullptr) owner_->Add(tag_, location_, -bytes_);
}

}  // namespace tandem
