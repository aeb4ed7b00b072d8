#include "common/weights/cuda/ipc_slots.h"

#include <cstring>
#include <utility>

#include <absl/time/clock.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/numeric.h"
#include "common/base/status.h"
#include "common/device/cuda/cuda_api.h"

namespace tandem {

absl::Status AwaitPartner(CudaApi& api,
                          CudaEvent event,
                          const PeerConnection& connection,
                          const PartnerWork& work) {
  Clock& clock = RealClock();
  const auto happened = [&] { return api.HasHappened(event); };
  const auto look = [&] {
    return connection.closed() ? absl::UnavailableError("no answer") : absl::OkStatus();
  };
  const absl::Status waited = PollUntil(clock, clock.Now() + connection.timeout, happened, look);
  if (waited.ok()) return waited;
  if (connection.closed()) {
    return MakeStatus(absl::StatusCode::kUnavailable,
                      "the {} died before its GPU {} ({}): its log has the reason, and {}",
                      work.partner, work.what, std::string(waited.message()), work.remedy);
  }
  if (!absl::IsDeadlineExceeded(waited)) {
    return Annotate(waited,
                    fmt::format("waiting until the {}'s GPU has {}", work.partner, work.what));
  }
  return MakeStatus(
      absl::StatusCode::kDeadlineExceeded,
      "the {}'s GPU has not {} within {}: look at its log, and at nvidia-smi for work "
      "that hangs",
      work.partner, work.what, absl::FormatDuration(connection.timeout));
}

namespace {

// A legacy handle opens the driver's whole allocation around an address, and the driver cuts
// smaller allocations out of blocks of this size: slots take whole blocks, so that they share none.
constexpr int64_t kExportedBytes = int64_t{2} << 20;

class IpcProducer final : public ProducerSlots {
 public:
  IpcProducer(CudaContext* context, const SlotShape& shape, SlotLife life)
      : ProducerSlots(shape), context_(context), persistent_(life == SlotLife::kManyUpdates) {}

  ~IpcProducer() override {
    CudaApi& api = context_->api();
    api.Synchronize(context_->stream()).IgnoreError();
    for (const auto* events : {&filled_, &drained_}) {
      for (CudaEvent event : *events) api.DestroyEvent(event).IgnoreError();
    }
    if (own_ == nullptr) return;
    api.Free(own_).IgnoreError();
    if (ledger_ != nullptr) ledger_->Add("bucket", Location::kDevice, -bytes());
  }

  absl::Status Allocate(Ledger* ledger) {
    const auto memory = context_->api().Malloc(RoundUp(shape_.bytes(), kExportedBytes));
    if (!memory.ok()) {
      return Annotate(memory.status(),
                      fmt::format("{} slots of {} MiB on the GPU (weight_sync.bucket_mb and "
                                  "weight_sync.slots lower it)",
                                  shape_.slots, shape_.slot_bytes >> 20));
    }
    own_ = *memory;
    ledger_ = ledger;
    if (ledger_ != nullptr) ledger_->Add("bucket", Location::kDevice, bytes());
    return Export(own_);
  }

  // Called once in the life of the mapping.
  absl::Status Export(std::byte* memory) {
    CudaApi& api = context_->api();
    data_ = memory;
    IpcPayload payload = {.mapping = absl::GetCurrentTimeNanos(),
                          .persistent = persistent_,
                          .uuid = context_->info().uuid};
    TANDEM_ASSIGN_OR_RETURN(payload.memory, api.ExportMemory(memory));
    for (auto [events, handles] :
         {std::pair(&filled_, &payload.filled), std::pair(&drained_, &payload.drained)}) {
      for (int slot = 0; slot < shape_.slots; ++slot) {
        TANDEM_ASSIGN_OR_RETURN(CudaEvent const event, api.CreateEvent(/*shared=*/true));
        events->push_back(event);
        TANDEM_ASSIGN_OR_RETURN(handles->emplace_back(), api.ExportEvent(event));
      }
    }
    payload_ = payload.ToBytes();
    return absl::OkStatus();
  }

  const std::byte* host_slot(int /*index*/) const override { return nullptr; }
  std::byte* slot(int index) const override {
    return data_ + (shape_.direct ? 0 : index * shape_.slot_bytes);
  }
  int64_t bytes() const override {
    return own_ == nullptr ? 0 : RoundUp(shape_.bytes(), kExportedBytes);
  }
  bool persistent() const override { return persistent_; }
  bool must_be_closed() const override { return true; }
  SlotHandle handle() const override {
    return {.kind = SlotHandle::Kind::kCudaIpc, .payload = payload_};
  }

  absl::Status BeginFill(int index, const PeerConnection& connection) override {
    return WithOrigin(
        AwaitPartner(
            context_->api(), drained_[static_cast<size_t>(index)], connection,
            {"rollout", fmt::format("read slot {}", index), "the next update takes new slots"}),
        FailureOrigin::kPartner);
  }
  absl::Status Copy(std::byte* to, const void* rows, int64_t bytes) override {
    return context_->api().Copy(to, rows, bytes, context_->stream());
  }
  absl::Status EndFill(int index, int64_t /*bytes*/) override {
    return context_->api().Record(filled_[static_cast<size_t>(index)], context_->stream());
  }

 private:
  CudaContext* const context_;
  const bool persistent_;
  Ledger* ledger_ = nullptr;
  std::byte* data_ = nullptr;
  std::byte* own_ = nullptr;
  std::vector<CudaEvent> filled_, drained_;
  std::string payload_;
};

class IpcConsumer final : public ConsumerSlots {
 public:
  IpcConsumer(CudaContext* context, std::shared_ptr<IpcMapping> mapping, const SlotShape& shape)
      : ConsumerSlots(shape), context_(context), mapping_(std::move(mapping)) {}
  // An update that failed may leave reads in progress, and errors that must not reach the next
  // update.
  ~IpcConsumer() override {
    const absl::Status status = context_->Synchronize();
    if (!status.ok()) LogWarn("after the end of a weight update: {}", status.ToString());
  }

  std::byte* slot(int index) const override {
    return mapping_->memory() + (shape_.direct ? 0 : index * shape_.slot_bytes);
  }
  bool persistent() const override { return mapping_->persistent(); }
  Location location() const override { return Location::kDevice; }
  absl::Status BeginRead(int index, const PeerConnection& connection) override {
    return AwaitPartner(
        context_->api(), mapping_->filled(index), connection,
        {"trainer", fmt::format("filled slot {}", index), "the next update sends everything"});
  }
  absl::Status EndRead(int index) override {
    return context_->api().Record(mapping_->drained(index), context_->stream());
  }

 private:
  CudaContext* const context_;
  const std::shared_ptr<IpcMapping> mapping_;
};

absl::Status CheckSameDevice(CudaContext& context, const std::string& uuid) {
  if (uuid == context.info().uuid) return absl::OkStatus();
  const absl::StatusOr<int> here = DeviceOfUuid(context.api(), uuid);
  return FailedPrecondition(
      "the trainer's weights lie on GPU {}, this rollout computes on GPU {}: a pair shares one; {}",
      uuid, context.info().uuid,
      here.ok() ? fmt::format("it is device {} of this process", *here)
                : "this process does not see it (CUDA_VISIBLE_DEVICES)");
}

// Converts the error of a handle that could not be opened. Drivers report a system that does not
// allow it by many codes (invalid value, invalid handle, map failed, not supported), so every error
// becomes Unimplemented unless it certainly has another cause.
absl::Status Refused(CudaContext& context, const absl::Status& status) {
  if (absl::IsResourceExhausted(status)) {
    return Annotate(status, "opening the trainer's GPU memory");
  }
  const absl::Status lost = context.api().Synchronize(context.stream());
  if (!lost.ok()) return Annotate(lost, "this GPU had failed before the trainer's memory came");
  return MakeStatus(absl::StatusCode::kUnimplemented,
                    "the trainer's GPU memory cannot be opened here (a container without ptrace or "
                    "of another IPC namespace?): {}",
                    status.ToString());
}

}  // namespace

absl::Status ProbeIpc(CudaContext& context) {
  if (!context.info().legacy_ipc) {
    return FailedPrecondition("{} says that it has no legacy IPC (MIG, or an integrated GPU)",
                              context.info().name);
  }
  IpcProducer slots(&context, {.slot_bytes = int64_t{2} << 20, .slots = 1}, SlotLife::kOneUpdate);
  return slots.Allocate(nullptr);
}

absl::StatusOr<int> DeviceOfUuid(CudaApi& api, const std::string& uuid) {
  TANDEM_ASSIGN_OR_RETURN(const int devices, api.DeviceCount());
  std::string there_are;
  for (int device = 0; device < devices; ++device) {
    TANDEM_ASSIGN_OR_RETURN(const CudaDeviceInfo info, api.Describe(device));
    if (info.uuid == uuid) return device;
    there_are += fmt::format("{}{}", device == 0 ? "" : ", ", info.uuid);
  }
  return FailedPrecondition(
      "GPU {} is not among those of this process ({}): set "
      "CUDA_VISIBLE_DEVICES so that it is",
      uuid, there_are);
}

absl::StatusOr<std::unique_ptr<ProducerSlots>> CreateIpcSlots(CudaContext* context,
                                                              const SlotShape& shape,
                                                              SlotLife life,
                                                              Ledger* ledger) {
  auto slots = std::make_unique<IpcProducer>(context, shape, life);
  TANDEM_RETURN_IF_ERROR(slots->Allocate(ledger));
  return slots;
}

absl::StatusOr<std::unique_ptr<ProducerSlots>> IpcSlotsOver(CudaContext* context,
                                                            const ShardMemory& shard,
                                                            int slots) {
  auto over = std::make_unique<IpcProducer>(context, SlotShape{shard.bytes, slots, true},
                                            SlotLife::kManyUpdates);
  TANDEM_RETURN_IF_ERROR(over->Export(shard.data));
  return over;
}

absl::StatusOr<std::shared_ptr<IpcMapping>> IpcMapping::Open(CudaContext* context,
                                                             const IpcPayload& payload) {
  TANDEM_RETURN_IF_ERROR(CheckSameDevice(*context, payload.uuid));
  CudaApi& api = context->api();
  std::shared_ptr<IpcMapping> mapping(new IpcMapping(context, payload.persistent));
  const absl::StatusOr<std::byte*> memory = api.OpenMemory(payload.memory);
  if (!memory.ok()) return Refused(*context, memory.status());
  mapping->memory_ = *memory;
  for (auto [handles, events] : {std::pair(&payload.filled, &mapping->filled_),
                                 std::pair(&payload.drained, &mapping->drained_)}) {
    for (const CudaIpcHandle& handle : *handles) {
      const absl::StatusOr<CudaEvent> event = api.OpenEvent(handle);
      if (!event.ok()) return Refused(*context, event.status());
      events->push_back(*event);
    }
  }
  return mapping;
}

IpcMapping::~IpcMapping() {
  CudaApi& api = context_->api();
  for (const auto* events : {&filled_, &drained_}) {
    for (CudaEvent event : *events) api.DestroyEvent(event).IgnoreError();
  }
  if (memory_ != nullptr) api.CloseMemory(memory_).IgnoreError();
}

std::unique_ptr<ConsumerSlots> IpcSlotsOf(CudaContext* context,
                                          std::shared_ptr<IpcMapping> mapping,
                                          const SlotShape& shape) {
  return std::make_unique<IpcConsumer>(context, std::move(mapping), shape);
}

namespace {

constexpr size_t kUuidBytes = 32;

struct Fixed {
  int64_t mapping = 0;
  int64_t persistent = 0;
  int64_t slots = 0;
  char uuid[kUuidBytes] = {};
  CudaIpcHandle memory;
};

}  // namespace

std::string IpcPayload::ToBytes() const {
  Fixed fixed = {mapping, persistent ? 1 : 0, static_cast<int64_t>(filled.size()), {}, memory};
  memcpy(fixed.uuid, uuid.data(), std::min(uuid.size(), kUuidBytes));
  std::string bytes(reinterpret_cast<const char*>(&fixed), sizeof(fixed));
  for (const auto* events : {&filled, &drained}) {
    for (const CudaIpcHandle& event : *events) {
      bytes.append(reinterpret_cast<const char*>(event.bytes.data()), event.bytes.size());
    }
  }
  return bytes;
}

absl::StatusOr<IpcPayload> IpcPayload::FromBytes(const std::string& bytes) {
  Fixed fixed;
  constexpr size_t kHandle = sizeof(CudaIpcHandle);
  if (bytes.size() >= sizeof(fixed)) memcpy(&fixed, bytes.data(), sizeof(fixed));
  const size_t events = bytes.size() < sizeof(fixed) ? 0 : (bytes.size() - sizeof(fixed)) / kHandle;
  if (fixed.slots < 1 || bytes.size() != sizeof(fixed) + events * kHandle ||
      events != 2 * static_cast<size_t>(fixed.slots)) {
    return InvalidArgument("{} bytes are not a handle of slots on a GPU", bytes.size());
  }
  IpcPayload payload;
  payload.mapping = fixed.mapping;
  payload.persistent = fixed.persistent != 0;
  payload.uuid.assign(fixed.uuid, strnlen(fixed.uuid, kUuidBytes));
  payload.memory = fixed.memory;
  const char* at = bytes.data() + sizeof(fixed);
  for (auto* handles : {&payload.filled, &payload.drained}) {
    handles->resize(static_cast<size_t>(fixed.slots));
    for (CudaIpcHandle& handle : *handles) {
      memcpy(handle.bytes.data(), at, kHandle);
      at += kHandle;
    }
  }
  return payload;
}

}  // namespace tandem
