#include "rollout_worker/weights/weight_updates.h"

#include <utility>

#include "common/base/status.h"

namespace tandem {
namespace {

constexpr int64_t kMaxReadBytes = 1 << 20;

}  // namespace

WeightReceiver::WeightReceiver(std::unique_ptr<StorageOps> storage,
                               std::unique_ptr<PairListener> listener,
                               const WeightReceiverOptions& options)
    : options_(options), core_(std::move(storage)), listener_(std::move(listener)) {}

absl::StatusOr<std::unique_ptr<WeightReceiver>> WeightReceiver::Create(
    std::unique_ptr<StorageOps> storage, const WeightReceiverOptions& options) {
  TANDEM_ASSIGN_OR_RETURN(auto listener, PairListener::Listen(options.pair_socket));
  return std::unique_ptr<WeightReceiver>(
      new WeightReceiver(std::move(storage), std::move(listener), options));
}

absl::Status WeightReceiver::AdoptVersion(int64_t version) {
  DropSlots(Ended::kAborted);
  return core_.AdoptVersion(version);
}

void WeightReceiver::DropVersion() {
  DropSlots(Ended::kAborted);
  core_.DropVersion();
}

// In this order: the end of the connection tells the trainer that its slots are closed.
void WeightReceiver::DropSlots(Ended how) {
  const bool lasts = received_.slots != nullptr && received_.slots->lasting();
  received_.slots.reset();
  if (lasts && how == Ended::kCommitted) lasting_link_ = std::move(received_.link);
  // Nobody would tell of the end of a trainer whose first such update failed.
  if (lasts && !holds_slots()) options_.transport->Forget();
  received_.link.connection.Reset();
}

void WeightReceiver::ForgetSlots() {
  options_.transport->Forget();
  lasting_link_.connection.Reset();
}

absl::Status WeightReceiver::Begin(const UpdateOpening& opening) {
  if (core_.updating()) {
    if (opening.generation <= core_.open_generation()) {
      return MakeStatus(absl::StatusCode::kAborted,
                        "generation {} of the update to version {} is over: generation {} (version "
                        "{}) is open",
                        opening.generation, opening.version, core_.open_generation(),
                        core_.open_version());
    }
    core_.Abort();
    DropSlots(Ended::kAborted);
  }
  constexpr int64_t kMost = int64_t{1} << 46;  // that any machine has: products stay numbers
  if (opening.slots.slots < 1 || opening.slots.slot_bytes < 1 ||
      opening.slots.slot_bytes > kMost / opening.slots.slots) {
    return InvalidArgument("{} slots of {} bytes were announced", opening.slots.slots,
                           opening.slots.slot_bytes);
  }
  TANDEM_RETURN_IF_ERROR(
      core_.Begin(opening.version, opening.generation, opening.manifest, opening.scope));
  opening_ = opening;
  return opening.scramble ? core_.Scramble() : absl::OkStatus();
}

// The trainer passes the slots before it asks for the first bucket: they wait in the socket.
absl::Status WeightReceiver::TakeSlots(absl::Duration timeout) {
  if (received_.slots != nullptr) return absl::OkStatus();
  TANDEM_ASSIGN_OR_RETURN(received_,
                          listener_->Receive(opening_.generation, opening_.slots, timeout,
                                             *options_.transport, options_.ledger));
  received_.link.timeout = options_.slots_timeout;
  return absl::OkStatus();
}

absl::Status WeightReceiver::Apply(int64_t version,
                                   int64_t generation,
                                   int slot,
                                   const std::vector<BucketEntry>& entries) {
  if (core_.open_version() == version && core_.open_generation() == generation) {
    TANDEM_RETURN_IF_ERROR(TakeSlots(options_.slots_timeout));
    TANDEM_RETURN_IF_ERROR(PollPeer());
    if (slot < 0 || slot >= opening_.slots.slots) {
      return InvalidArgument("slot {} of {} was announced as filled", slot, opening_.slots.slots);
    }
    const absl::Status applied = ApplySlot(slot, entries);
    // What a driver says of memory and events whose process is gone is not worth telling.
    if (!applied.ok()) TANDEM_RETURN_IF_ERROR(PollPeer());
    return applied;
  }
  return core_.Apply(version, generation, FilledSlot(), entries);  // Aborted, with the reason
}

absl::Status WeightReceiver::ApplySlot(int slot, const std::vector<BucketEntry>& entries) {
  SlotMemory& slots = *received_.slots;
  TANDEM_RETURN_IF_ERROR(slots.BeginRead(slot, received_.link));
  TANDEM_RETURN_IF_ERROR(
      core_.Apply(opening_.version, opening_.generation,
                  {slots.slot(slot), opening_.slots.slot_bytes, slots.location()}, entries));
  return slots.EndRead(slot);
}

absl::Status WeightReceiver::Commit(int64_t version,
                                    int64_t generation,
                                    const std::vector<Digest>& digests) {
  const absl::Status status = core_.Commit(version, generation, digests);
  if (!core_.updating()) DropSlots(status.ok() ? Ended::kCommitted : Ended::kAborted);
  return status;
}

void WeightReceiver::Abort(int64_t version, int64_t generation) {
  const bool meant =
      version < 0 || (version == core_.open_version() && generation == core_.open_generation());
  if (!core_.updating() || !meant) return;
  core_.Abort();
  DropSlots(Ended::kAborted);
}

absl::Status WeightReceiver::PollPeer() {
  if (!core_.updating()) {
    if (lasting_link_.closed()) ForgetSlots();
    return absl::OkStatus();
  }
  const absl::Status taken = TakeSlots(absl::ZeroDuration());
  if (absl::IsDeadlineExceeded(taken)) return absl::OkStatus();  // not passed yet
  if (taken.ok() && !received_.link.closed()) return absl::OkStatus();
  const int64_t version = core_.open_version();
  Abort(-1, -1);
  ForgetSlots();
  TANDEM_RETURN_IF_ERROR(taken);
  return MakeStatus(absl::StatusCode::kUnavailable,
                    "the trainer died during the update to version {}; {}", version,
                    core_.version() == kNoVersion
                        ? std::string("no complete weights are left")
                        : fmt::format("version {} stays", core_.version()));
}

absl::StatusOr<std::string> WeightReceiver::ReadRows(const std::string& name,
                                                     int64_t row,
                                                     int64_t rows) const {
  if (core_.version() == kNoVersion) {
    return FailedPrecondition("the rollout has no complete weights to read {} from", name);
  }
  const WeightLayout& layout = core_.storage().layout();
  TANDEM_ASSIGN_OR_RETURN(const TensorPlace* place, layout.Find(name));
  if (row < 0 || rows < 1 || rows > place->rows() - row) {
    return InvalidArgument("{} rows from row {} of {}, which has {}", rows, row, name,
                           place->rows());
  }
  const int64_t bytes = rows * place->cols() * static_cast<int64_t>(DTypeBytes(layout.dtype()));
  if (bytes > kMaxReadBytes) {
    return InvalidArgument("{} rows of {} are {} bytes; a read has at most {}", rows, name, bytes,
                           kMaxReadBytes);
  }
  std::string data(bytes, '\0');
  TANDEM_RETURN_IF_ERROR(core_.storage().ReadRows(*place, row, rows, data.data()));
  return data;
}

}  // namespace tandem
