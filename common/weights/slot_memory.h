// The slots that payload crosses in: unnamed shared memory, made by the trainer, mapped read-only
// by the rollout for one update. Holds payload only, never control words.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include <absl/status/statusor.h>

#include "common/device/ledger.h"
#include "common/device/local_socket.h"

namespace tandem {

// Unmaps and closes when destroyed. Not thread-safe.
class SlotMemory {
 public:
  // The producer's side. `ledger` may be null; it counts the bytes under "bucket" once, here.
  // ResourceExhausted names the bytes and the key that lowers them.
  static absl::StatusOr<std::unique_ptr<SlotMemory>> Create(int64_t slot_bytes,
                                                            int slots,
                                                            Ledger* ledger);
  // The consumer's side of a descriptor that Create's side passed. InvalidArgument: another size,
  // or not sealed.
  static absl::StatusOr<std::unique_ptr<SlotMemory>> Map(UniqueFd fd,
                                                         int64_t slot_bytes,
                                                         int slots);
  ~SlotMemory();
  SlotMemory(const SlotMemory&) = delete;
  SlotMemory& operator=(const SlotMemory&) = delete;

  std::byte* slot(int index) const { return base_ + index * slot_bytes_; }
  int64_t slot_bytes() const { return slot_bytes_; }
  int slots() const { return slots_; }
  int fd() const { return fd_.get(); }

 private:
  SlotMemory() = default;
  absl::Status MapPages(int protection);
  UniqueFd fd_;
  std::byte* base_ = nullptr;
  int64_t slot_bytes_ = 0;
  int slots_ = 0;
  Ledger* ledger_ = nullptr;
};

}  // namespace tandem
