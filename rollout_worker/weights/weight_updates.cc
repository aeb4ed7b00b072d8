#include "rollout_worker/weights/weight_updates.h"

#include <algorithm>
#include <utility>

#include "common/base/check.h"
#include "common/base/log.h"
#include "common/base/status.h"
#include "common/device/device_memory.h"
#include "common/weights/host_slots.h"

namespace tandem {
namespace {

constexpr int64_t kMaxReadBytes = 1 << 20;
constexpr int kMostBehind = 4096;  // rollouts of a run
// Slots over TCP are at most so many times the weights, and some more for the alignment of small
// models: two hold everything twice.
constexpr int64_t kMostSlotShare = 4;
constexpr int64_t kSpareBytes = 64 << 20;

absl::Status CheckAnnounced(const SlotShape& shape) {
  // More memory than any machine has, so that products of sizes do not overflow.
  constexpr int64_t kMost = int64_t{1} << 46;
  if (shape.slots >= 1 && shape.slot_bytes >= 1 && shape.slot_bytes <= kMost / shape.slots) {
    return absl::OkStatus();
  }
  return InvalidArgument("{} slots of {} bytes were announced", shape.slots, shape.slot_bytes);
}

}  // namespace

WeightUpdates::WeightUpdates(std::unique_ptr<StorageOps> storage,
                             std::unique_ptr<PeerListener> listener,
                             RolloutStates* states,
                             const WeightUpdatesOptions& options)
    : options_(options),
      states_(states),
      transaction_(std::move(storage)),
      listener_(std::move(listener)) {}

absl::StatusOr<std::unique_ptr<WeightUpdates>> WeightUpdates::Create(
    std::unique_ptr<StorageOps> storage,
    RolloutStates* states,
    const WeightUpdatesOptions& options) {
  TANDEM_ASSIGN_OR_RETURN(auto listener, PeerListener::Listen(options.pair_socket));
  return std::unique_ptr<WeightUpdates>(
      new WeightUpdates(std::move(storage), std::move(listener), states, options));
}

absl::Status WeightUpdates::CheckTurn(const UpdateRequest& request) const {
  const UpdateId open = transaction_.open();
  if (request.group_generation < states_->newest_group()) {
    return MakeStatus(absl::StatusCode::kAborted,
                      "update {}, to version {}, is of trainers that have been replaced: they are "
                      "of generation {}, and this rollout knows of generation {}",
                      request.id.update_number, request.id.version, request.group_generation,
                      states_->newest_group());
  }
  if (!transaction_.updating() || request.id.update_number > open.update_number) {
    return absl::OkStatus();
  }
  return MakeStatus(absl::StatusCode::kAborted,
                    "update {}, to version {}, is over: update {}, to version {}, is open",
                    request.id.update_number, request.id.version, open.update_number, open.version);
}

absl::Status WeightUpdates::Begin(const UpdateRequest& request, StreamOffer* offer) {
  const absl::Status turn = CheckTurn(request);
  if (!turn.ok()) return states_->ReopenAdmission(turn);
  states_->KnowGroup(request.group_generation);
  if (transaction_.updating()) {
    Abort(transaction_.open());
    states_->CloseAdmission();
  }
  absl::Status begun = states_->Check(RolloutEvent::kBegin);
  if (begun.ok()) begun = Open(request, offer);
  if (!begun.ok()) return states_->ReopenAdmission(begun);
  return states_->Handle(RolloutEvent::kBegin);
}

// This rollout makes the slots that a trainer asks for.
absl::Status WeightUpdates::CheckStream(const UpdateRequest& request) const {
  if (options_.slot_listener == nullptr) {
    return FailedPrecondition(
        "update {} is to come over TCP, and this rollout takes none: it has no data listener, as "
        "it listens on a Unix socket and weight_sync.transport is not tcp",
        request.id.update_number);
  }
  const int64_t most = kMostSlotShare * transaction_.storage().layout().total_bytes() + kSpareBytes;
  if (!request.slots.direct && request.slots.bytes() <= most) return CheckShape(request.slots);
  return InvalidArgument("{}{} slots of {} bytes are no slots of an update over TCP",
                         request.slots.direct ? "direct, " : "", request.slots.slots,
                         request.slots.slot_bytes);
}

absl::Status WeightUpdates::Open(const UpdateRequest& request, StreamOffer* offer) {
  TANDEM_RETURN_IF_ERROR(CheckAnnounced(request.slots));
  if (request.over_tcp) TANDEM_RETURN_IF_ERROR(CheckStream(request));
  TANDEM_RETURN_IF_ERROR(transaction_.Begin(request.id, request.manifest, request.scope));
  request_ = request;
  traffic_ = {};
  if (request.over_tcp) {
    auto made = options_.slot_listener->Expect(
        request.id.update_number, request.slots,
        request.chain.from_rollout ? StreamSender::kTrainerOrRollout : StreamSender::kTrainer);
    if (!made.ok()) transaction_.Abort();
    TANDEM_RETURN_IF_ERROR(made.status());
    if (offer != nullptr) *offer = *std::move(made);
  }
  if (!request.scramble) return absl::OkStatus();
  const absl::Status scrambled = transaction_.Scramble();
  if (!scrambled.ok()) transaction_.Abort();
  ReportToStates();
  return scrambled;
}

absl::Status WeightUpdates::Apply(UpdateId id, int slot, const std::vector<BucketEntry>& entries) {
  TANDEM_RETURN_IF_ERROR(states_->Check(RolloutEvent::kApply));
  const absl::Status applied = ApplyBucket(id, slot, entries);
  ReportToStates();
  return applied;
}

absl::Status WeightUpdates::ApplyBucket(UpdateId id,
                                        int slot,
                                        const std::vector<BucketEntry>& entries) {
  // The transaction refuses any other update: Aborted, with the reason.
  if (transaction_.open() != id) return transaction_.Apply(id, FilledSlot(), entries);
  TANDEM_RETURN_IF_ERROR(ReceiveSlots(options_.slots_timeout));
  TANDEM_RETURN_IF_ERROR(Poll());
  if (slot < 0 || slot >= request_.slots.slots) {
    return InvalidArgument("slot {} of {} was announced as filled", slot, request_.slots.slots);
  }
  const absl::Status filled = AwaitSlot(slot);
  if (!filled.ok()) return EndUpdate(filled);
  const absl::Status applied = ApplySlot(slot, entries);
  // If the trainer has died, its death caused the driver's error about its memory.
  if (!applied.ok()) TANDEM_RETURN_IF_ERROR(Poll());
  return applied;
}

// Over TCP: until the slot's contents have come, which the next rollout is then sent.
absl::Status WeightUpdates::AwaitSlot(int slot) {
  if (received_.receiver == nullptr) return absl::OkStatus();
  TANDEM_ASSIGN_OR_RETURN(const int64_t bytes,
                          received_.receiver->Await(slot, options_.slots_timeout));
  if (relay_ != nullptr) {
    relay_->Forward(slot, received_.slots->slot(slot), bytes);
  }
  return absl::OkStatus();
}

absl::Status WeightUpdates::ApplySlot(int slot, const std::vector<BucketEntry>& entries) {
  ConsumerSlots& slots = *received_.slots;
  TANDEM_RETURN_IF_ERROR(slots.BeginRead(slot, received_.connection));
  TANDEM_RETURN_IF_ERROR(transaction_.Apply(
      request_.id, {slots.slot(slot), request_.slots.slot_bytes, slots.location()}, entries));
  TANDEM_RETURN_IF_ERROR(slots.EndRead(slot));
  if (received_.receiver != nullptr) received_.receiver->Free(slot);
  return absl::OkStatus();
}

absl::Status WeightUpdates::Commit(UpdateId id,
                                   const std::vector<Digest>& digests,
                                   StreamTraffic* traffic) {
  TANDEM_RETURN_IF_ERROR(states_->Check(RolloutEvent::kCommit));
  // Whatever the digests here say: the rollouts behind this one look at their own.
  if (relay_ != nullptr && transaction_.open() == id) relay_->Finish();
  const absl::Status committed = transaction_.Commit(id, digests);
  if (!transaction_.updating()) {
    CloseSlots(committed.ok() ? Ended::kCommitted : Ended::kAborted);
  }
  if (traffic != nullptr) *traffic = traffic_;
  if (!committed.ok()) {
    ReportToStates();
    return committed;
  }
  states_->set_weights_complete(true);
  SetLogVersion(version());
  TANDEM_RETURN_IF_ERROR(states_->Handle(RolloutEvent::kCommit));
  LogInfo("{}: holds weight version {}", RolloutStateName(states_->state()), version());
  if (options_.resident != nullptr) {
    InjectBitFlip(options_.resident->device(), "resident weights", options_.resident->data());
  }
  return absl::OkStatus();
}

void WeightUpdates::Abort(UpdateId id) {
  const bool meant = id.version < 0 || id == transaction_.open();
  if (!transaction_.updating() || !meant) return;
  transaction_.Abort();
  CloseSlots(Ended::kAborted);
  ReportToStates();
}

absl::Status WeightUpdates::Poll() {
  if (!transaction_.updating()) {
    if (persistent_connection_.closed()) ForgetSlots();
    return absl::OkStatus();
  }
  const absl::Status received = ReceiveSlots(absl::ZeroDuration());
  if (absl::IsDeadlineExceeded(received)) return absl::OkStatus();  // not passed yet
  if (received.ok() && !received_.closed()) return absl::OkStatus();
  absl::Status why = received;
  if (why.ok() && received_.receiver != nullptr) why = received_.receiver->why();
  const absl::Status ended = EndUpdate(why);
  ForgetSlots();
  return received.ok() ? ended : received;
}

// Ends the open update for the reason `why`; OK: its connection has ended.
absl::Status WeightUpdates::EndUpdate(const absl::Status& why) {
  const UpdateId ended = transaction_.open();
  Abort(ended);
  const std::string left = version() == kNoVersion ? std::string("no complete weights are left")
                                                   : fmt::format("version {} stays", version());
  if (!why.ok() && !absl::IsUnavailable(why)) {
    return Annotate(why,
                    fmt::format("the update to version {} has ended; {}", ended.version, left));
  }
  return MakeStatus(absl::StatusCode::kUnavailable,
                    "the trainer died during the update to version {}; {}{}", ended.version, left,
                    why.ok() ? "" : fmt::format(" ({})", std::string(why.message())));
}

void WeightUpdates::ReportToStates() {
  states_->set_weights_complete(version() != kNoVersion);
  SetLogVersion(version());
  if (states_->state() != RolloutState::kUpdating || transaction_.updating()) return;
  const absl::Status left = states_->Handle(RolloutEvent::kAbort);
  TANDEM_CHECK(left.ok(), std::string(left.message()));
}

absl::Status WeightUpdates::AdoptVersion(int64_t version) {
  CloseSlots(Ended::kAborted);
  const absl::Status adopted = transaction_.AdoptVersion(version);
  ReportToStates();
  TANDEM_RETURN_IF_ERROR(adopted);
  return states_->Handle(RolloutEvent::kLoad);
}

void WeightUpdates::DropVersion() {
  CloseSlots(Ended::kAborted);
  transaction_.DropVersion();
  ReportToStates();
}

// The trainer passes the slots before it announces the first bucket, so they are waiting in the
// socket by then.
absl::Status WeightUpdates::ReceiveSlots(absl::Duration timeout) {
  if (received_.slots != nullptr) return absl::OkStatus();
  if (request_.over_tcp) {
    TANDEM_ASSIGN_OR_RETURN(received_, AcceptStream(timeout));
  } else {
    TANDEM_ASSIGN_OR_RETURN(received_,
                            listener_->Receive(request_.id.update_number, request_.slots, timeout,
                                               *options_.transport, options_.ledger));
  }
  received_.connection.timeout = options_.slots_timeout;
  return absl::OkStatus();
}

absl::StatusOr<ReceivedSlots> WeightUpdates::AcceptStream(absl::Duration timeout) {
  TANDEM_ASSIGN_OR_RETURN(auto connection, options_.slot_listener->Take(timeout));
  ReceivedSlots received;
  TANDEM_ASSIGN_OR_RETURN(received.slots,
                          options_.transport->MakeOwn(request_.slots, options_.ledger));
  const bool forwards = !request_.chain.next.address.empty();
  received.receiver = std::make_unique<SlotReceiver>(
      std::move(connection), request_.id.update_number, request_.slots, received.slots->slot(0),
      options_.slots_timeout,
      ReceiverRole{.from_rollout = request_.chain.from_rollout, .forwards = forwards});
  if (forwards) relay_ = MakeRelay(received.receiver.get());
  return received;
}

// The nearer to the chain's end, the earlier a relay gives up what stands still: all links before a
// rollout that reads nothing stand still, and only the last of them is to break.
std::unique_ptr<SlotRelay> WeightUpdates::MakeRelay(SlotReceiver* receiver) const {
  const int behind = std::clamp(request_.chain.behind, 1, kMostBehind);
  return std::make_unique<SlotRelay>(StreamTarget{.address = request_.chain.next.address,
                                                  .ticket = request_.chain.next.ticket,
                                                  .update_number = request_.id.update_number,
                                                  .shape = request_.slots},
                                     options_.relay_security,
                                     options_.slots_timeout * behind / (behind + 1),
                                     [receiver](int slot) { receiver->Forwarded(slot); });
}

void WeightUpdates::CloseSlots(Ended how) {
  if (options_.slot_listener != nullptr) options_.slot_listener->Forget();
  if (relay_ != nullptr) traffic_.forwarded = relay_->bytes();
  relay_.reset();
  if (received_.receiver != nullptr) traffic_.received = received_.receiver->bytes();
  received_.receiver.reset();
  const bool persistent = received_.slots != nullptr && received_.slots->persistent();
  // Slots are closed before the connection, whose end tells the trainer that they are closed.
  received_.slots.reset();
  if (persistent && how == Ended::kCommitted) {
    persistent_connection_ = std::move(received_.connection);
  }
  // If the first update with persistent slots failed, no connection is left that would report the
  // trainer's death, so its slots are closed now.
  if (persistent && !holds_slots()) options_.transport->Forget();
  received_.connection.socket.Reset();
}

void WeightUpdates::ForgetSlots() {
  options_.transport->Forget();
  persistent_connection_.socket.Reset();
}

absl::Status WeightUpdates::AdmitRequest(int64_t wanted) const {
  TANDEM_RETURN_IF_ERROR(states_->Check(RolloutEvent::kGenerate));
  if (wanted < 0 || wanted == version()) return absl::OkStatus();
  return FailedPrecondition(
      "the request wants weight version {}, but this rollout serves version {}; sync it first",
      wanted, version());
}

absl::Status WeightUpdates::CheckReadable() const {
  if (states_->resources().weights_mapped && version() != kNoVersion) return absl::OkStatus();
  return FailedPrecondition("this rollout is {} and holds no readable weights; wake and sync it",
                            RolloutStateName(states_->state()));
}

absl::Status WeightUpdates::Verify(int64_t wanted) const {
  TANDEM_RETURN_IF_ERROR(CheckReadable());
  if (transaction_.updating() || wanted != version()) {
    return FailedPrecondition(
        "weight version {} cannot be verified: this rollout is {} and holds version {}", wanted,
        RolloutStateName(states_->state()), version());
  }
  TANDEM_RETURN_IF_ERROR(transaction_.Verify());
  return transaction_.storage().CheckPadding();
}

absl::StatusOr<std::vector<Digest>> WeightUpdates::Digests() const {
  TANDEM_RETURN_IF_ERROR(CheckReadable());
  return transaction_.Digests();
}

absl::StatusOr<std::string> WeightUpdates::ReadRows(const std::string& name,
                                                    int64_t row,
                                                    int64_t rows) const {
  TANDEM_RETURN_IF_ERROR(CheckReadable());
  const WeightLayout& layout = transaction_.storage().layout();
  TANDEM_ASSIGN_OR_RETURN(const TensorPlace* place, layout.Find(name));
  if (row < 0 || rows < 1 || rows > place->rows() - row) {
    return InvalidArgument("cannot read {} rows from row {} of {}: it has {} rows", rows, row, name,
                           place->rows());
  }
  const int64_t bytes = rows * place->cols() * static_cast<int64_t>(DTypeBytes(layout.dtype()));
  if (bytes > kMaxReadBytes) {
    return InvalidArgument("{} rows of {} are {} bytes; a read has at most {}", rows, name, bytes,
                           kMaxReadBytes);
  }
  std::string data(bytes, '\0');
  TANDEM_RETURN_IF_ERROR(transaction_.storage().ReadRows(*place, row, rows, data.data()));
  return data;
}

}  // namespace tandem
