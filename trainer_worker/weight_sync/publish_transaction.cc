#include "trainer_worker/weight_sync/publish_transaction.h"

#include <algorithm>

#include "common/base/clock.h"
#include "common/base/round_up.h"
#include "common/base/status_macros.h"
#include "common/base/stopwatch.h"
#include "common/process/fault_injection.h"

namespace tandem {
namespace {

// What a process that is being killed takes to close all that it has open, a GPU's memory too.
constexpr absl::Duration kDying = absl::Seconds(5);

}  // namespace

void PublishTransaction::Begin(const UpdateOffer& offer, const absl::StatusOr<SlotMemory*>& slots) {
  if (client_ == nullptr) return;
  if (!slots.ok()) {
    status_ = slots.status();
    return;
  }
  slots_ = *slots;
  Check(Timed([&] { return BeginOnClient(offer); }));
  if (!transport_->unproven()) return;
  // A bucket of nothing: the rollout has to open the slots for it.
  if (active()) Check(client_->StartApply(0, {}));
  if (active()) Check(Timed([&] { return client_->WaitApply(0); }));
  if (active()) transport_->Proven();
}

absl::Status PublishTransaction::BeginOnClient(const UpdateOffer& offer) {
  TANDEM_ASSIGN_OR_RETURN(link_, client_->Begin(offer, *slots_));
  return absl::OkStatus();
}

void PublishTransaction::AwaitSlot() {
  if (active()) Check(Timed([&] { return client_->WaitApply(slot()); }));
  if (active()) Check(Timed([&] { return slots_->BeginFill(slot(), link_); }));
}

absl::StatusOr<std::byte*> PublishTransaction::Slot(int64_t bytes) {
  AwaitSlot();
  if (active()) return slots_->slot(slot());
  if (scratch_ == nullptr || scratch_->shape().slot_bytes < bytes) {
    scratch_.reset();
    TANDEM_ASSIGN_OR_RETURN(scratch_, transport_->Create({RoundUp(bytes, kEntryAlignment), 1},
                                                         SlotLife::kOneUpdate, nullptr));
  }
  return scratch_->slot(0);
}

void PublishTransaction::Copy(std::byte* to, const void* rows, int64_t bytes) {
  if (active()) Check(slots_->Copy(to, rows, bytes));
}

void PublishTransaction::Filled(const std::vector<BucketEntry>& entries, int64_t bytes) {
  if (active()) FaultPoint("sync.bucket");
  if (active()) Check(slots_->EndFill(slot(), bytes));
  if (active()) Check(client_->StartApply(slot(), entries));
  ++bucket_;
}

absl::Status PublishTransaction::Commit(const std::vector<Digest>& digests) {
  for (int slot = 0; active() && slot < slots_->slots(); ++slot) {
    Check(Timed([&] { return client_->WaitApply(slot); }));
  }
  if (active()) Check(Timed([&] { return client_->Commit(digests); }));
  return status_;
}

void PublishTransaction::Abort(const std::string& reason) {
  if (active()) Check(absl::Status(absl::StatusCode::kAborted, reason));
}

template <typename Call>
absl::Status PublishTransaction::Timed(Call&& call) {
  const Stopwatch watch(wait_seconds_);
  return call();
}

void PublishTransaction::Check(const absl::Status& status) {
  if (status.ok() || !status_.ok()) return;
  status_ = status;
  const absl::Status aborted = client_->Abort(std::string(status.message()));
  if (!aborted.ok()) {
    end_ = Unanswered();
    status_ = Annotate(status_, fmt::format("(the rollout did not confirm the abort: {})",
                                            std::string(aborted.message())));
  }
}

// Slots in shared memory of the host may go whoever reads them, and nobody waits for that.
UpdateEnd PublishTransaction::Unanswered() const {
  // Nothing was passed: open is at most what lasts.
  if (!link_.connection.valid()) return slots_->lasting() ? UpdateEnd::kUnknown : UpdateEnd::kGone;
  Clock& clock = RealClock();
  const absl::Time deadline = clock.Now() + std::min(kDying, link_.timeout);
  while (slots_->must_be_closed() && !link_.closed() && clock.Now() < deadline) {
    clock.Sleep(absl::Milliseconds(1));
  }
  return link_.closed() ? UpdateEnd::kGone : UpdateEnd::kUnknown;
}

}  // namespace tandem
