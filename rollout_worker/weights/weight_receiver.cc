#include "rollout_worker/weights/weight_receiver.h"

#include <utility>

#include "common/base/status_macros.h"
#include "common/ops/cpu/thread_pool.h"

namespace tandem {
namespace {

constexpr int64_t kMaxReadBytes = 1 << 20;

}  // namespace

WeightReceiver::WeightReceiver(const WeightLayout* layout,
                               std::byte* storage,
                               std::shared_ptr<ThreadPool> pool,
                               std::unique_ptr<PairListener> listener,
                               const WeightReceiverOptions& options)
    : layout_(layout),
      storage_(storage),
      options_(options),
      core_(layout, storage, std::move(pool)),
      listener_(std::move(listener)) {}

absl::StatusOr<std::unique_ptr<WeightReceiver>> WeightReceiver::Create(
    const WeightLayout* layout,
    std::byte* storage,
    std::shared_ptr<ThreadPool> pool,
    const WeightReceiverOptions& options) {
  TANDEM_ASSIGN_OR_RETURN(auto listener, PairListener::Listen(options.pair_socket));
  return std::unique_ptr<WeightReceiver>(
      new WeightReceiver(layout, storage, std::move(pool), std::move(listener), options));
}

void WeightReceiver::AdoptVersion(int64_t version) {
  core_.AdoptVersion(version);
  DropSlots();
}

void WeightReceiver::DropSlots() { received_ = ReceivedSlots(); }

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
    DropSlots();
  }
  if (opening.slots < 1 || opening.slot_bytes < 1) {
    return InvalidArgument("{} slots of {} bytes were announced", opening.slots,
                           opening.slot_bytes);
  }
  TANDEM_RETURN_IF_ERROR(core_.Begin(opening.version, opening.generation, opening.manifest));
  opening_ = opening;
  return absl::OkStatus();
}

// The trainer passes the slots before it asks for the first bucket: they wait in the socket.
absl::Status WeightReceiver::TakeSlots(absl::Duration timeout) {
  if (received_.slots != nullptr) return absl::OkStatus();
  TANDEM_ASSIGN_OR_RETURN(received_, listener_->Receive(opening_.generation, opening_.slot_bytes,
                                                        opening_.slots, timeout));
  return absl::OkStatus();
}

absl::Status WeightReceiver::Apply(int64_t version,
                                   int64_t generation,
                                   int slot,
                                   const std::vector<BucketEntry>& entries) {
  if (core_.open_version() == version && core_.open_generation() == generation) {
    TANDEM_RETURN_IF_ERROR(TakeSlots(options_.slots_timeout));
    TANDEM_RETURN_IF_ERROR(PollPeer());
    if (slot < 0 || slot >= opening_.slots) {
      return InvalidArgument("slot {} of {} was announced as filled", slot, opening_.slots);
    }
    return core_.Apply(version, generation, received_.slots->slot(slot), opening_.slot_bytes,
                       entries);
  }
  return core_.Apply(version, generation, nullptr, 0, entries);  // Aborted, with the reason
}

absl::Status WeightReceiver::Commit(int64_t version,
                                    int64_t generation,
                                    const std::vector<Digest>& digests) {
  const absl::Status status = core_.Commit(version, generation, digests);
  if (!core_.updating()) DropSlots();
  return status;
}

void WeightReceiver::Abort(int64_t version, int64_t generation) {
  const bool meant =
      version < 0 || (version == core_.open_version() && generation == core_.open_generation());
  if (!core_.updating() || !meant) return;
  core_.Abort();
  DropSlots();
}

absl::Status WeightReceiver::PollPeer() {
  if (!core_.updating()) return absl::OkStatus();
  const absl::Status taken = TakeSlots(absl::ZeroDuration());
  if (absl::IsDeadlineExceeded(taken)) return absl::OkStatus();  // not passed yet
  if (taken.ok() && !received_.peer_gone()) return absl::OkStatus();
  const int64_t version = core_.open_version();
  Abort(-1, -1);
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
  TANDEM_ASSIGN_OR_RETURN(const TensorPlace* place, layout_->Find(name));
  if (row < 0 || rows < 1 || rows > place->rows() - row) {
    return InvalidArgument("{} rows from row {} of {}, which has {}", rows, row, name,
                           place->rows());
  }
  const int64_t bytes = rows * place->cols() * static_cast<int64_t>(DTypeBytes(layout_->dtype()));
  if (bytes > kMaxReadBytes) {
    return InvalidArgument("{} rows of {} are {} bytes; a read has at most {}", rows, name, bytes,
                           kMaxReadBytes);
  }
  std::string data(bytes, '\0');
  layout_->ReadRows(storage_ + layout_->group_offset(place->layer), *place, row, rows, data.data());
  return data;
}

}  // namespace tandem
