#include "trainer_worker/weight_sync/weight_publisher.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include "common/base/clock.h"
#include "common/base/numeric.h"
#include "common/base/progress.h"
#include "common/base/status.h"
#include "common/process/fault_injection.h"

namespace tandem {
namespace {

// The time a killed process may take to close everything that it has open, including a GPU's
// memory.
constexpr absl::Duration kProcessExitTime = absl::Seconds(5);

}  // namespace

absl::StatusOr<StreamOffer> UpdateClient::Open(const UpdateRequest& /*request*/) {
  return absl::UnimplementedError("Open");
}

absl::StatusOr<PeerConnection> UpdateClient::Connect(const StreamOffer& /*offer*/,
                                                     const ProducerSlots& /*slots*/) {
  return absl::UnimplementedError("Connect");
}

void PublishTransaction::Begin(UpdateRequest request, const absl::StatusOr<ProducerSlots*>& slots) {
  if (client_ == nullptr) return;
  if (!slots.ok()) {
    status_ = slots.status();
    return;
  }
  slots_ = *slots;
  request.slots = slots_->shape();
  Check(Timed([&] { return BeginOnClient(request); }));
  if (!transport_->unproven()) return;
  // An empty bucket: the rollout has to open the slots to apply it.
  if (active()) Check(client_->StartApply(0, {}));
  if (active()) Check(Timed([&] { return client_->WaitApply(0); }));
  if (active()) transport_->Proven();
}

absl::Status PublishTransaction::BeginOnClient(const UpdateRequest& request) {
  TANDEM_ASSIGN_OR_RETURN(link_, client_->Begin(request, *slots_));
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
  if (active()) Check(SendSlot(bytes));
  if (active()) Check(client_->StartApply(slot(), entries));
  ++bucket_;
}

absl::Status PublishTransaction::SendSlot(int64_t bytes) {
  if (link_.sender == nullptr) return absl::OkStatus();
  const std::byte* const filled = slots_->host_slot(slot());
  if (filled == nullptr) {
    return FailedPrecondition(
        "the slots are memory of a GPU, which cannot be sent to another host: set "
        "weight_sync.transport=tcp");
  }
  return link_.sender->Send(slot(), filled, bytes);
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
  if (link_.sender != nullptr) {
    // Nothing reads the slots from now on, and the rollout waits for no more of them.
    link_.sender->Stop();
    const absl::Status sent = link_.sender->status();
    if (!sent.ok() && sent != status) status_ = Annotate(status, std::string(sent.message()));
  }
  const absl::Status aborted = client_->Abort(std::string(status.message()));
  if (!aborted.ok()) {
    end_ = EndWithoutAnswer();
    status_ = Annotate(status_, fmt::format("(the rollout did not confirm the abort: {})",
                                            std::string(aborted.message())));
  }
}

// Slots in shared host memory may be freed while a rollout reads them, so there is no wait for
// those.
UpdateEnd PublishTransaction::EndWithoutAnswer() const {
  // No slots were passed, so at most persistent ones are open.
  if (!link_.socket.valid())
    return slots_->persistent() ? UpdateEnd::kUnknown : UpdateEnd::kPeerClosed;
  Clock& clock = RealClock();
  const Instant deadline = clock.Now() + std::min(kProcessExitTime, link_.timeout);
  while (slots_->must_be_closed() && !link_.closed() && clock.Now() < deadline) {
    clock.Sleep(absl::Milliseconds(1));
  }
  return link_.closed() ? UpdateEnd::kPeerClosed : UpdateEnd::kUnknown;
}

namespace {

// Gathers a bucket's rows into its slot.
absl::Status FillSlot(const Bucket& bucket,
                      std::span<const TensorPlace> places,
                      const Manifest& manifest,
                      WeightSource& source,
                      PublishTransaction& transaction,
                      PublishReport* report) {
  TANDEM_ASSIGN_OR_RETURN(std::byte* const slot, transaction.Slot(bucket.bytes));
  for (const BucketEntry& entry : bucket.entries) {
    const ManifestTensor& tensor = manifest[entry.tensor];
    std::byte* const to = slot + entry.offset;
    absl::StatusOr<const void*> rows = nullptr;
    {
      const Stopwatch watch(&report->gather_seconds);
      rows =
          source.GatherRows({&places[entry.tensor], entry.row, entry.rows, tensor.row_bytes()}, to);
    }
    if (!rows.ok()) return Annotate(rows.status(), fmt::format("gathering {}", tensor.name));
    const Stopwatch watch(&report->fill_seconds);
    if (*rows != to) transaction.Copy(to, *rows, entry.rows * tensor.row_bytes());
    NoteProgress();
  }
  return absl::OkStatus();
}

// The same rows at their offsets in the shared memory.
std::vector<BucketEntry> AtSharedOffsets(std::vector<BucketEntry> entries,
                                         const Manifest& manifest,
                                         const std::vector<int64_t>& offsets) {
  for (BucketEntry& entry : entries) {
    entry.offset = offsets[entry.tensor] + entry.row * manifest[entry.tensor].row_bytes();
  }
  return entries;
}

// `before` and `now` cover all tensors, of which the manifest has the last ones.
void CountChanges(const Manifest& manifest,
                  const std::vector<Digest>& before,
                  const std::vector<Digest>& now,
                  PublishReport* report) {
  int64_t changed_bytes = 0;
  std::string all;
  const size_t kept = now.size() - manifest.size();
  for (size_t t = 0; t < now.size(); ++t) {
    all += now[t].Bytes();
    if (t < kept || (t < before.size() && before[t] == now[t])) continue;
    ++report->changed_tensors;
    changed_bytes += manifest[t - kept].bytes();
  }
  report->digest = DigestOf(all.data(), static_cast<int64_t>(all.size())).Hex();
  if (report->bytes > 0) {
    report->changed_bytes_share = static_cast<double>(changed_bytes) / report->bytes;
  }
}

// Reorders digests as UpdateClient::Commit requires: first those of the tensors that are sent.
std::vector<Digest> InOrderOfCommit(std::vector<Digest> digests, size_t sent) {
  std::rotate(digests.begin(), digests.end() - static_cast<std::ptrdiff_t>(sent), digests.end());
  return digests;
}

}  // namespace

absl::StatusOr<ProducerSlots*> WeightPublisher::ReuseOrCreateSlots(
    const std::vector<Bucket>& buckets, const SharedTensors* shared) {
  const auto slots = static_cast<int>(std::clamp<int64_t>(std::ssize(buckets), 1, options_.slots));
  int64_t largest = kEntryAlignment;
  for (const Bucket& bucket : buckets) largest = std::max(largest, bucket.bytes);
  largest = RoundUp(largest, 4096);
  // The plan of buckets is the same in every update of one scope, and so are the slots, unless rows
  // now come from other memory. Slots for all weights also suffice for adapters.
  const bool same = slots_ != nullptr && slots_->shape().direct == (shared != nullptr) &&
                    (shared == nullptr ? slots_->shape().slot_bytes >= largest
                                       : slots_->slot(0) == shared->shard.data);
  if (same) return slots_.get();
  Replace();
  if (shared != nullptr) {
    TANDEM_ASSIGN_OR_RETURN(slots_, options_.transport->Over(shared->shard, slots));
    return slots_.get();
  }
  const SlotShape shape = {largest, slots};
  const bool keep = shape.bytes() <= options_.keep_bytes;
  TANDEM_ASSIGN_OR_RETURN(
      slots_, options_.transport->Create(
                  shape, keep ? SlotLife::kManyUpdates : SlotLife::kOneUpdate, options_.ledger));
  return slots_.get();
}

absl::Status WeightPublisher::Send(const std::vector<Bucket>& buckets,
                                   const Manifest& manifest,
                                   UpdateScope scope,
                                   WeightSource& source,
                                   const SharedTensors* shared,
                                   PublishTransaction& transaction,
                                   PublishReport* report) {
  const std::span<const TensorPlace> places = PlacesOf(*layout_, scope);
  int64_t number = 0;
  for (const Bucket& bucket : buckets) {
    const WorkStep step("weight sync", {"bucket", number++});
    if (shared != nullptr) {
      transaction.AwaitSlot();
      transaction.Filled(AtSharedOffsets(bucket.entries, manifest, shared->offsets), 0);
      continue;
    }
    TANDEM_RETURN_IF_ERROR(FillSlot(bucket, places, manifest, source, transaction, report));
    transaction.Filled(bucket.entries, bucket.bytes);
  }
  return absl::OkStatus();
}

const SharedTensors* WeightPublisher::SharedBy(const WeightSource& source,
                                               const UpdateClient* client) const {
  const bool apart = client != nullptr && client->over_tcp();
  return options_.transport->can_share() && !apart ? source.shared() : nullptr;
}

absl::StatusOr<std::vector<Bucket>> WeightPublisher::Plan(const Manifest& manifest,
                                                          const SharedTensors* shared,
                                                          PublishReport* report) const {
  report->direct = shared != nullptr;
  return PlanBuckets(manifest, report->direct ? std::max(options_.slot_bytes, options_.direct_bytes)
                                              : options_.slot_bytes);
}

absl::StatusOr<PublishReport> WeightPublisher::Publish(int64_t version,
                                                       WeightSource& source,
                                                       UpdateClient* client,
                                                       UpdateScope scope) {
  PublishReport report;
  report.version = version;
  source_failed_ = false;
  const Instant start = RealClock().Now();
  ++update_number_;
  const Manifest manifest = ManifestOf(*layout_, scope);
  // The plan, or the error, is the same on every rank, whether it publishes or not.
  const SharedTensors* shared = SharedBy(source, client);
  TANDEM_ASSIGN_OR_RETURN(std::vector<Bucket> buckets, Plan(manifest, shared, &report));
  TANDEM_ASSIGN_OR_RETURN(std::vector<Digest> digests, source.Digests());
  std::optional<PublishTransaction> transaction;
  const auto begin = [&] {
    transaction.emplace(client, options_.transport, &report.wait_seconds);
    transaction->Begin({.id = {version, update_number_},
                        .manifest = manifest,
                        .scope = scope,
                        .group_generation = options_.group_generation,
                        .over_tcp = client != nullptr && client->over_tcp()},
                       client == nullptr ? nullptr : ReuseOrCreateSlots(buckets, shared));
  };
  begin();
  if (options_.transport->FallBack(transaction->status())) {
    slots_.reset();
    ++update_number_;
    shared = SharedBy(source, client);
    TANDEM_ASSIGN_OR_RETURN(buckets, Plan(manifest, shared, &report));
    begin();
  }
  report.bytes = ManifestBytes(manifest);
  report.tensors = static_cast<int64_t>(manifest.size());
  report.buckets = client == nullptr ? 0 : static_cast<int64_t>(buckets.size());
  const absl::Status sent = Send(buckets, manifest, scope, source, shared, *transaction, &report);
  if (!sent.ok()) {
    source_failed_ = true;
    transaction->Abort(std::string(sent.message()));
    KeepOrDropSlots(transaction->end(), /*committed=*/false);
    ReleaseSlots();
    return sent;
  }
  CountChanges(manifest, digests_, digests, &report);
  const absl::Status committed = transaction->Commit(InOrderOfCommit(digests, manifest.size()));
  report.sent_bytes = transaction->sent_bytes();
  const bool arrived = committed.ok() && client != nullptr;
  KeepOrDropSlots(transaction->end(), arrived);
  if (arrived && slots_->persistent() && !client->over_tcp()) {
    lasting_link_ = transaction->TakeConnection();
  }
  if (slots_ != nullptr && slots_->bytes() > options_.keep_bytes) ReleaseSlots();
  TANDEM_RETURN_IF_ERROR(committed);
  digests_ = std::move(digests);
  report.seconds = absl::ToDoubleSeconds(RealClock().Now() - start);
  return report;
}

void WeightPublisher::Replace() {
  if (slots_ != nullptr && slots_->must_be_closed()) replaced_.push_back(std::move(slots_));
  slots_.reset();
}

void WeightPublisher::KeepOrDropSlots(UpdateEnd end, bool committed) {
  if (committed) replaced_.clear();
  if (end == UpdateEnd::kUnknown) Replace();
  // The slots' events may wait for work of a process that no longer exists.
  if (end == UpdateEnd::kPeerClosed && slots_ != nullptr && slots_->must_be_closed())
    slots_.reset();
}

void WeightPublisher::ReleaseSlots() {
  if (slots_ != nullptr && !slots_->persistent()) slots_.reset();
}

}  // namespace tandem
