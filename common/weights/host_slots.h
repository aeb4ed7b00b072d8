// Slots in shared memory of the host: an unnamed, sealed file whose descriptor crosses, and which
// the consumer maps for one update.
#pragma once

#include <memory>

#include <absl/status/statusor.h>

#include "common/device/shared_region.h"
#include "common/weights/weight_transport.h"

namespace tandem {

// InvalidArgument: a shape that no producer creates.
absl::Status CheckShape(const SlotShape& shape);

class HostSlots final : public SlotMemory {
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

  std::byte* slot(int index) const override {
    return data_ + (shape_.direct ? 0 : index * shape_.slot_bytes);
  }
  int64_t bytes() const override { return own_ == nullptr ? 0 : shape_.bytes(); }
  SlotHandle handle() const override { return {.fd = fd_}; }

  absl::Status BeginFill(int /*index*/, const PeerConnection& /*connection*/) override {
    return absl::OkStatus();
  }
  absl::Status Copy(std::byte* to, const void* rows, int64_t bytes) override;
  absl::Status EndFill(int /*index*/, int64_t /*bytes*/) override { return absl::OkStatus(); }
  absl::Status BeginRead(int /*index*/, const PeerConnection& /*connection*/) override {
    return absl::OkStatus();
  }
  absl::Status EndRead(int /*index*/) override { return absl::OkStatus(); }

 private:
  HostSlots(const SlotShape& shape, std::unique_ptr<SharedRegion> own)
      : SlotMemory(shape), own_(std::move(own)), data_(own_->data()), fd_(own_->fd()) {}
  HostSlots(const SlotShape& shape, const ShardMemory& shard)
      : SlotMemory(shape), data_(shard.data), fd_(shard.fd) {}

  const std::unique_ptr<SharedRegion> own_;
  std::byte* const data_;
  const int fd_;
};

}  // namespace tandem
