#include "common/weights/host_slots.h"

#include <cstring>
#include <utility>

#include "common/base/status.h"
#include "common/weights/manifest.h"

namespace tandem {
namespace {

// Both ends compute on the host, so that memory needs no order beyond that of the RPCs.
class HostProducer final : public ProducerSlots {
 public:
  explicit HostProducer(std::unique_ptr<HostSlots> memory)
      : ProducerSlots(memory->shape()), memory_(std::move(memory)) {}

  std::byte* slot(int index) const override { return memory_->slot(index); }
  bool persistent() const override { return false; }
  int64_t bytes() const override { return memory_->bytes(); }
  bool must_be_closed() const override { return false; }
  SlotHandle handle() const override { return {.fd = memory_->fd()}; }
  absl::Status BeginFill(int /*index*/, const PeerConnection& /*connection*/) override {
    return absl::OkStatus();
  }
  absl::Status Copy(std::byte* to, const void* rows, int64_t bytes) override {
    memcpy(to, rows, static_cast<size_t>(bytes));
    return absl::OkStatus();
  }
  absl::Status EndFill(int /*index*/, int64_t /*bytes*/) override { return absl::OkStatus(); }

 private:
  const std::unique_ptr<HostSlots> memory_;
};

class HostConsumer final : public ConsumerSlots {
 public:
  explicit HostConsumer(std::unique_ptr<HostSlots> memory)
      : ConsumerSlots(memory->shape()), memory_(std::move(memory)) {}

  std::byte* slot(int index) const override { return memory_->slot(index); }
  bool persistent() const override { return false; }
  Location location() const override { return Location::kDevice; }
  absl::Status BeginRead(int /*index*/, const PeerConnection& /*connection*/) override {
    return absl::OkStatus();
  }
  absl::Status EndRead(int /*index*/) override { return absl::OkStatus(); }

 private:
  const std::unique_ptr<HostSlots> memory_;
};

class HostTransportImpl final : public WeightTransport {
 public:
  absl::StatusOr<std::unique_ptr<ProducerSlots>> Create(const SlotShape& shape,
                                                        SlotLife /*life*/,
                                                        Ledger* ledger) override {
    TANDEM_ASSIGN_OR_RETURN(auto memory, HostSlots::Create(shape, ledger, Location::kHost));
    return std::make_unique<HostProducer>(std::move(memory));
  }
  absl::StatusOr<std::unique_ptr<ProducerSlots>> Over(const ShardMemory& shard,
                                                      int slots) override {
    return std::make_unique<HostProducer>(HostSlots::Over(shard, slots));
  }
  bool can_share() const override { return true; }
  bool unproven() const override { return false; }
  bool FallBack(const absl::Status& /*why*/) override { return false; }
  void Proven() override {}
  absl::StatusOr<std::unique_ptr<ConsumerSlots>> Open(PassedSlots passed, Ledger* ledger) override {
    if (passed.handle.kind != SlotHandle::Kind::kSharedMemory) {
      return InvalidArgument(
          "the trainer passed memory of a GPU, and this rollout runs on a CPU: run both on the "
          "same device");
    }
    TANDEM_ASSIGN_OR_RETURN(auto memory,
                            HostSlots::Map(std::move(passed), ledger, SharedRegion::Access::kRead));
    return std::make_unique<HostConsumer>(std::move(memory));
  }
  absl::StatusOr<std::unique_ptr<ConsumerSlots>> MakeOwn(const SlotShape& shape,
                                                         Ledger* ledger) override {
    TANDEM_RETURN_IF_ERROR(CheckShape(shape));
    TANDEM_ASSIGN_OR_RETURN(auto memory, HostSlots::Create(shape, ledger, Location::kHost));
    return std::make_unique<HostConsumer>(std::move(memory));
  }
  void Forget() override {}
};

}  // namespace

absl::Status CheckShape(const SlotShape& shape) {
  const bool aligned = shape.direct || shape.slot_bytes % kEntryAlignment == 0;
  if (shape.slot_bytes > 0 && shape.slots >= 1 && aligned) {
    return absl::OkStatus();
  }
  return InvalidArgument("{} slots of {} bytes: slots are multiples of {} bytes", shape.slots,
                         shape.slot_bytes, kEntryAlignment);
}

absl::StatusOr<std::unique_ptr<HostSlots>> HostSlots::Create(const SlotShape& shape,
                                                             Ledger* ledger,
                                                             Location location) {
  auto region =
      SharedRegion::Create("bucket", shape.bytes(), ledger, location, SharedRegion::Pages::kSmall);
  if (!region.ok()) {
    return Annotate(region.status(), fmt::format("{} slots of {} MiB (weight_sync.bucket_mb and "
                                                 "weight_sync.slots lower it)",
                                                 shape.slots, shape.slot_bytes >> 20));
  }
  return std::unique_ptr<HostSlots>(new HostSlots(shape, *std::move(region)));
}

std::unique_ptr<HostSlots> HostSlots::Over(const ShardMemory& shard, int slots) {
  return std::unique_ptr<HostSlots>(new HostSlots({shard.bytes, slots, true}, shard));
}

absl::StatusOr<std::unique_ptr<HostSlots>> HostSlots::Map(PassedSlots passed,
                                                          Ledger* ledger,
                                                          SharedRegion::Access access) {
  TANDEM_RETURN_IF_ERROR(CheckShape(passed.shape));
  TANDEM_ASSIGN_OR_RETURN(
      auto region,
      SharedRegion::MapForeign(std::move(passed.fd), passed.shape.bytes(), ledger, access));
  return std::unique_ptr<HostSlots>(new HostSlots(passed.shape, std::move(region)));
}

WeightTransport* HostTransport() {
  static HostTransportImpl transport;
  return &transport;
}

}  // namespace tandem
