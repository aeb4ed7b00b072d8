#include "common/weights/cuda/cuda_transport.h"

#include <cstring>
#include <utility>

#include "common/base/log.h"
#include "common/base/status.h"
#include "common/weights/cuda/ipc_slots.h"
#include "common/weights/cuda/pinned_slots.h"
#include "common/weights/weight_transport.h"

namespace tandem {

absl::StatusOr<std::unique_ptr<CudaTransport>> CudaTransport::Create(CudaContext* context,
                                                                     const std::string& key) {
  const absl::Status probed = key == "shm" || key == "tcp" ? absl::OkStatus() : ProbeIpc(*context);
  TANDEM_ASSIGN_OR_RETURN(const CudaTransportChoice choice, ChooseCudaTransport(key, probed));
  LogInfo("{}", choice.why);
  return std::unique_ptr<CudaTransport>(new CudaTransport(context, choice.ipc, key == "auto"));
}

CudaTransport::~CudaTransport() = default;

absl::StatusOr<std::unique_ptr<ProducerSlots>> CudaTransport::Create(const SlotShape& shape,
                                                                     SlotLife life,
                                                                     Ledger* ledger) {
  return ipc_ ? CreateIpcSlots(context_, shape, life, ledger)
              : CreatePinnedSlots(context_, shape, life, ledger);
}

absl::StatusOr<std::unique_ptr<ProducerSlots>> CudaTransport::Over(const ShardMemory& shard,
                                                                   int slots) {
  auto over = IpcSlotsOver(context_, shard, slots);
  if (!absl::IsFailedPrecondition(over.status())) return over;
  return MakeStatus(absl::StatusCode::kUnimplemented,
                    "the system does not hand out the shard's GPU memory: {}",
                    over.status().ToString());
}

bool CudaTransport::FallBack(const absl::Status& why) {
  if (!unproven() || !may_fall_back_ || !absl::IsUnimplemented(why)) return false;
  ipc_ = false;
  LogWarn("weight transport: shm from now on (pinned, a memfd over the pair's socket): {}",
          why.ToString());
  return true;
}

absl::StatusOr<std::unique_ptr<ConsumerSlots>> CudaTransport::Open(PassedSlots passed,
                                                                   Ledger* ledger) {
  if (passed.handle.payload != payload_) Forget();
  return passed.handle.kind == SlotHandle::Kind::kCudaIpc ? OpenIpc(passed)
                                                          : OpenPinned(std::move(passed), ledger);
}

absl::StatusOr<std::unique_ptr<ConsumerSlots>> CudaTransport::OpenIpc(const PassedSlots& passed) {
  TANDEM_ASSIGN_OR_RETURN(const IpcPayload payload, IpcPayload::FromBytes(passed.handle.payload));
  if (static_cast<int>(payload.filled.size()) != passed.shape.slots) {
    return InvalidArgument("events of {} slots were passed for {}", payload.filled.size(),
                           passed.shape.slots);
  }
  std::shared_ptr<IpcMapping> mapping = opened_;
  if (mapping == nullptr) {
    TANDEM_ASSIGN_OR_RETURN(mapping, IpcMapping::Open(context_, payload));
  }
  if (payload.persistent) {
    payload_ = passed.handle.payload;
    opened_ = mapping;
  }
  return IpcSlotsOf(context_, std::move(mapping), passed.shape);
}

absl::StatusOr<std::unique_ptr<ConsumerSlots>> CudaTransport::OpenPinned(PassedSlots passed,
                                                                         Ledger* ledger) {
  PinnedPayload payload;
  const std::string bytes = passed.handle.payload;
  if (bytes.size() != sizeof(payload)) {
    return InvalidArgument(
        "the trainer passed memory of its host, and this rollout runs on a GPU: run both on the "
        "same device");
  }
  memcpy(&payload, bytes.data(), sizeof(payload));
  const SlotShape shape = passed.shape;
  std::shared_ptr<PinnedSlots> pinned = pinned_;
  if (pinned == nullptr) {
    TANDEM_ASSIGN_OR_RETURN(
        auto slots, HostSlots::Map(std::move(passed), ledger, SharedRegion::Access::kReadWrite));
    pinned = std::make_shared<PinnedSlots>(
        context_, std::move(slots),
        payload.persistent != 0 ? SlotLife::kManyUpdates : SlotLife::kOneUpdate);
  }
  if (payload.persistent != 0) {
    payload_ = bytes;
    pinned_ = pinned;
  }
  return PinnedSlotsOf(context_, std::move(pinned), shape);
}

absl::StatusOr<std::unique_ptr<ConsumerSlots>> CudaTransport::MakeOwn(const SlotShape& shape,
                                                                      Ledger* ledger) {
  TANDEM_RETURN_IF_ERROR(CheckShape(shape));
  TANDEM_ASSIGN_OR_RETURN(auto slots, HostSlots::Create(shape, ledger, Location::kHost));
  return PinnedSlotsOf(
      context_, std::make_shared<PinnedSlots>(context_, std::move(slots), SlotLife::kOneUpdate),
      shape);
}

void CudaTransport::Forget() {
  payload_.clear();
  opened_.reset();
  pinned_.reset();
}

}  // namespace tandem
