// Slots in shared memory of the host, between two GPU processes that cannot open each other's
// memory. Both sides pin it, so that copies run at the copy engines' speed; if the system does not
// allow that, they copy more slowly and log a warning once. Kernels do not read it, so it needs no
// device address; neither side's stream ever waits for the other process.
#pragma once

#include <cstdint>
#include <memory>

#include <absl/status/statusor.h>

#include "common/device/cuda/cuda_context.h"
#include "common/weights/host_slots.h"

namespace tandem {

// Host memory of HostSlots, pinned as long as this lives.
class PinnedSlots {
 public:
  PinnedSlots(CudaContext* context, std::unique_ptr<HostSlots> slots, SlotLife life);
  ~PinnedSlots();
  PinnedSlots(const PinnedSlots&) = delete;
  PinnedSlots& operator=(const PinnedSlots&) = delete;
  HostSlots& slots() const { return *slots_; }
  bool persistent() const { return persistent_; }

 private:
  CudaContext* const context_;
  const std::unique_ptr<HostSlots> slots_;
  const bool persistent_;
  bool pinned_ = false;
};

// The producer's end. A slot is filled in device memory of one slot's size, counted under "bucket",
// and crosses in one copy. EndFill waits for that copy; gathering the next slot overlaps with the
// consumer's copy.
absl::StatusOr<std::unique_ptr<ProducerSlots>> CreatePinnedSlots(CudaContext* context,
                                                                 const SlotShape& shape,
                                                                 SlotLife life,
                                                                 Ledger* ledger);
// The consumer's end, for one update: rows are in the host's memory, and EndRead waits until they
// are copied.
std::unique_ptr<ConsumerSlots> PinnedSlotsOf(CudaContext* context,
                                             std::shared_ptr<PinnedSlots> opened,
                                             const SlotShape& shape);

// Sent by a producer: which mapping its slots are, and whether they are persistent.
struct PinnedPayload {
  int64_t mapping = 0;
  int64_t persistent = 0;
};

}  // namespace tandem
