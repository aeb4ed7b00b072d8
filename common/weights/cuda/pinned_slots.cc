#include "common/weights/cuda/pinned_slots.h"

#include <utility>

#include <absl/time/clock.h>

#include "common/base/log.h"
#include "common/base/status.h"

namespace tandem {
namespace {

class PinnedProducer final : public ProducerSlots {
 public:
  PinnedProducer(CudaContext* context, const SlotShape& shape, SlotLife life)
      : ProducerSlots(shape),
        context_(context),
        payload_{absl::GetCurrentTimeNanos(), life == SlotLife::kManyUpdates ? 1 : 0} {}
  ~PinnedProducer() override {
    context_->api().Synchronize(context_->stream()).IgnoreError();
    if (staging_ == nullptr) return;
    context_->api().Free(staging_).IgnoreError();
    if (ledger_ != nullptr) ledger_->Add("bucket", Location::kDevice, -shape_.slot_bytes);
  }

  absl::Status Allocate(Ledger* ledger) {
    TANDEM_ASSIGN_OR_RETURN(auto slots, HostSlots::Create(shape_, ledger, Location::kHost));
    TANDEM_ASSIGN_OR_RETURN(staging_, context_->api().Malloc(shape_.slot_bytes));
    ledger_ = ledger;
    if (ledger_ != nullptr) ledger_->Add("bucket", Location::kDevice, shape_.slot_bytes);
    pinned_ = std::make_unique<PinnedSlots>(
        context_, std::move(slots), persistent() ? SlotLife::kManyUpdates : SlotLife::kOneUpdate);
    return absl::OkStatus();
  }

  std::byte* slot(int /*index*/) const override { return staging_; }
  int64_t bytes() const override { return shape_.bytes() + shape_.slot_bytes; }
  bool persistent() const override { return payload_.persistent != 0; }
  bool must_be_closed() const override { return false; }
  SlotHandle handle() const override {
    SlotHandle handle = {.fd = pinned_->slots().fd()};
    handle.payload.assign(reinterpret_cast<const char*>(&payload_), sizeof(payload_));
    return handle;
  }

  absl::Status BeginFill(int /*index*/, const PeerConnection& /*connection*/) override {
    return absl::OkStatus();
  }
  absl::Status Copy(std::byte* to, const void* rows, int64_t bytes) override {
    return context_->api().Copy(to, rows, bytes, context_->stream());
  }
  absl::Status EndFill(int index, int64_t bytes) override {
    TANDEM_RETURN_IF_ERROR(
        context_->api().Copy(pinned_->slots().slot(index), staging_, bytes, context_->stream()));
    return context_->api().Synchronize(context_->stream());
  }
  const std::byte* host_slot(int index) const override { return pinned_->slots().slot(index); }

 private:
  CudaContext* const context_;
  const PinnedPayload payload_;
  Ledger* ledger_ = nullptr;
  std::byte* staging_ = nullptr;
  std::unique_ptr<PinnedSlots> pinned_;
};

class PinnedConsumer final : public ConsumerSlots {
 public:
  PinnedConsumer(CudaContext* context, std::shared_ptr<PinnedSlots> opened, const SlotShape& shape)
      : ConsumerSlots(shape), context_(context), opened_(std::move(opened)) {}
  ~PinnedConsumer() override {
    const absl::Status status = context_->Synchronize();
    if (!status.ok()) LogWarn("after the end of a weight update: {}", status.ToString());
  }

  std::byte* slot(int index) const override { return opened_->slots().slot(index); }
  Location location() const override { return Location::kHost; }
  bool persistent() const override { return opened_->persistent(); }
  absl::Status BeginRead(int /*index*/, const PeerConnection& /*connection*/) override {
    return absl::OkStatus();
  }
  absl::Status EndRead(int /*index*/) override { return context_->Synchronize(); }

 private:
  CudaContext* const context_;
  const std::shared_ptr<PinnedSlots> opened_;
};

}  // namespace

PinnedSlots::PinnedSlots(CudaContext* context, std::unique_ptr<HostSlots> slots, SlotLife life)
    : context_(context), slots_(std::move(slots)), persistent_(life == SlotLife::kManyUpdates) {
  const absl::Status pinned =
      context_->api().RegisterHost(slots_->slot(0), slots_->shape().bytes());
  pinned_ = pinned.ok();
  if (!pinned_) {
    LogWarn("{} MiB of slots are not pinned, copies will be slower: {}",
            slots_->shape().bytes() >> 20, pinned.ToString());
  }
}

PinnedSlots::~PinnedSlots() {
  if (pinned_) context_->api().UnregisterHost(slots_->slot(0)).IgnoreError();
}

absl::StatusOr<std::unique_ptr<ProducerSlots>> CreatePinnedSlots(CudaContext* context,
                                                                 const SlotShape& shape,
                                                                 SlotLife life,
                                                                 Ledger* ledger) {
  auto slots = std::make_unique<PinnedProducer>(context, shape, life);
  TANDEM_RETURN_IF_ERROR(slots->Allocate(ledger));
  return slots;
}

std::unique_ptr<ConsumerSlots> PinnedSlotsOf(CudaContext* context,
                                             std::shared_ptr<PinnedSlots> opened,
                                             const SlotShape& shape) {
  return std::make_unique<PinnedConsumer>(context, std::move(opened), shape);
}

}  // namespace tandem
