#include "common/weights/slot_memory.h"

#include <cerrno>
#include <cstring>

#include <sys/mman.h>

#include "common/base/status_macros.h"
#include "common/weights/bucket_plan.h"

namespace tandem {

absl::StatusOr<std::unique_ptr<SlotMemory>> SlotMemory::Create(int64_t slot_bytes,
                                                               int slots,
                                                               Ledger* ledger) {
  std::unique_ptr<SlotMemory> memory(new SlotMemory());
  memory->slot_bytes_ = slot_bytes;
  memory->slots_ = slots;
  auto fd = CreateSharedMemory("bucket", slot_bytes * slots);
  if (!fd.ok()) {
    return Annotate(fd.status(), fmt::format("{} slots of {} MiB (weight_sync.bucket_mb and "
                                             "weight_sync.slots lower it)",
                                             slots, slot_bytes >> 20));
  }
  memory->fd_ = std::move(fd).value();
  TANDEM_RETURN_IF_ERROR(memory->MapPages(PROT_READ | PROT_WRITE));
  memory->ledger_ = ledger;
  if (ledger != nullptr) ledger->Add("bucket", Location::kHost, slot_bytes * slots);
  return memory;
}

absl::StatusOr<std::unique_ptr<SlotMemory>> SlotMemory::Map(UniqueFd fd,
                                                            int64_t slot_bytes,
                                                            int slots) {
  if (slot_bytes <= 0 || slots < 1 || slot_bytes % kEntryAlignment != 0) {
    return InvalidArgument("{} slots of {} bytes: slots are multiples of {} bytes", slots,
                           slot_bytes, kEntryAlignment);
  }
  TANDEM_RETURN_IF_ERROR(CheckSharedMemory(fd.get(), slot_bytes * slots));
  std::unique_ptr<SlotMemory> memory(new SlotMemory());
  memory->fd_ = std::move(fd);
  memory->slot_bytes_ = slot_bytes;
  memory->slots_ = slots;
  TANDEM_RETURN_IF_ERROR(memory->MapPages(PROT_READ));
  return memory;
}

absl::Status SlotMemory::MapPages(int protection) {
  void* base = mmap(nullptr, slot_bytes_ * slots_, protection, MAP_SHARED, fd_.get(), 0);
  if (base == MAP_FAILED) {
    return MakeStatus(absl::StatusCode::kResourceExhausted, "cannot map {} bytes of slots: {}",
                      slot_bytes_ * slots_, strerror(errno));
  }
  base_ = static_cast<std::byte*>(base);
  return absl::OkStatus();
}

SlotMemory::~SlotMemory() {
  if (base_ != nullptr) munmap(base_, slot_bytes_ * slots_);
  if (ledger_ != nullptr) ledger_->Add("bucket", Location::kHost, -slot_bytes_ * slots_);
}

}  // namespace tandem
