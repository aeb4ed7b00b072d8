// Slots in shared memory of the host: an unnamed, sealed file whose descriptor crosses, and which
// the consumer maps for one update.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include "common/device/ledger.h"
#include "common/device/shared_region.h"
#include "common/types/ledger_snapshot.h"
#include "common/weights/weight_transport.h"

namespace tandem {

// InvalidArgument: a shape that no producer creates.
absl::Status CheckShape(const SlotShape& shape);

// The memory of the slots, of either end: owned, mapped, or the trainer's shard.
class HostSlots {
 public:
  // Counted where `location` says. ResourceExhausted names the bytes and the key that lowers them.
  static absl::StatusOr<std::unique_ptr<HostSlots>> Create(const SlotShape& shape,
                                                           Ledger* ledger,
                                                           Location location);
  static std::unique_ptr<HostSlots> Over(const ShardMemory& shard, int slots);
  // InvalidArgument: fewer bytes, or not sealed. Otherwise as WeightTransport::Open.
  static absl::StatusOr<std::unique_ptr<HostSlots>> Map(PassedSlots passed,
                                                        Ledger* ledger,
                                                        SharedRegion::Access access);

  const SlotShape& shape() const { return shape_; }
  std::byte* slot(int index) const {
    return data_ + (shape_.direct ? 0 : index * shape_.slot_bytes);
  }
  int64_t bytes() const { return own_ == nullptr ? 0 : shape_.bytes(); }
  int fd() const { return fd_; }

 private:
  HostSlots(const SlotShape& shape, std::unique_ptr<SharedRegion> own)
      : shape_(shape), own_(std::move(own)), data_(own_->data()), fd_(own_->fd()) {}
  HostSlots(const SlotShape& shape, const ShardMemory& shard)
      : shape_(shape), data_(shard.data), fd_(shard.fd) {}

  const SlotShape shape_;
  const std::unique_ptr<SharedRegion> own_;
  std::byte* const data_;
  const int fd_;
};

}  // namespace tandem
