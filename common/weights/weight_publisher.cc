#include "common/weights/weight_publisher.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>

#include <absl/time/clock.h>

#include "common/base/fault_point.h"
#include "common/base/status_macros.h"

namespace tandem {
namespace {

// Adds the time of its scope to `seconds`.
class Stopwatch {
 public:
  explicit Stopwatch(double* seconds) : seconds_(seconds), start_(absl::Now()) {}
  ~Stopwatch() { *seconds_ += absl::ToDoubleSeconds(absl::Now() - start_); }

 private:
  double* const seconds_;
  const absl::Time start_;
};

// One update on the rollout. After the first failure it aborts the update and swallows the rest.
class Transaction {
 public:
  Transaction(UpdateClient* client, const std::vector<Bucket>& buckets, PublishReport* report)
      : client_(client), buckets_(buckets), report_(report) {}

  void Begin(UpdateOffer offer, const PublishOptions& options) {
    if (client_ == nullptr) return;
    int64_t largest = kEntryAlignment;
    for (const Bucket& bucket : buckets_) largest = std::max(largest, bucket.bytes);
    largest = (largest + 4095) / 4096 * 4096;
    const int64_t slots = std::clamp<int64_t>(buckets_.size(), 1, options.slots);
    auto memory = SlotMemory::Create(largest, static_cast<int>(slots), options.ledger);
    if (!memory.ok()) {
      status_ = memory.status();
      return;
    }
    slots_ = std::move(memory).value();
    Check(Timed([&] { return client_->Begin(offer, *slots_); }));
  }

  // Memory of `bytes` to fill with the next bucket: its slot, once the rollout has read what was in
  // it, or scratch that nobody reads.
  std::byte* Slot(int64_t bytes) {
    if (active()) Check(Timed([&] { return client_->WaitApply(slot()); }));
    if (active()) return slots_->slot(slot());
    if (static_cast<int64_t>(scratch_.size()) < bytes) scratch_.resize(bytes);
    return scratch_.data();
  }

  void Filled(const Bucket& bucket) {
    if (active()) FaultPoint("sync.bucket");
    if (active()) Check(client_->StartApply(slot(), bucket.entries));
    ++bucket_;
  }

  absl::Status Commit(const std::vector<Digest>& digests) {
    for (int slot = 0; active() && slot < slots_->slots(); ++slot) {
      Check(Timed([&] { return client_->WaitApply(slot); }));
    }
    if (active()) Check(Timed([&] { return client_->Commit(digests); }));
    return status_;
  }

  void Abort(const std::string& reason) {
    if (active()) Check(absl::Status(absl::StatusCode::kAborted, reason));
  }

 private:
  bool active() const { return client_ != nullptr && status_.ok(); }
  int slot() const { return static_cast<int>(bucket_ % slots_->slots()); }

  template <typename Call>
  absl::Status Timed(Call&& call) {
    const Stopwatch watch(&report_->wait_seconds);
    return call();
  }

  void Check(const absl::Status& status) {
    if (status.ok() || !status_.ok()) return;
    status_ = status;
    const absl::Status aborted = client_->Abort(std::string(status.message()));
    if (!aborted.ok()) {
      status_ = Annotate(status_, fmt::format("(the rollout did not confirm the abort: {})",
                                              std::string(aborted.message())));
    }
  }

  UpdateClient* const client_;
  const std::vector<Bucket>& buckets_;
  PublishReport* const report_;
  std::unique_ptr<SlotMemory> slots_;
  absl::Status status_;
  std::vector<std::byte> scratch_;
  size_t bucket_ = 0;  // that is being filled
};

// Both passes over one piece: what the first reads from memory the second finds in a cache.
constexpr int64_t kPieceBytes = 32 << 10;

void DigestAndCopy(const std::byte* rows, int64_t bytes, SequentialDigest* digest, std::byte* to) {
  for (int64_t at = 0; at < bytes; at += kPieceBytes) {
    const int64_t piece = std::min(kPieceBytes, bytes - at);
    digest->Append(rows + at, piece);
    if (rows != to) memcpy(to + at, rows + at, piece);
  }
}

// Gathers all buckets into the transaction's slots; returns the digests of the tensors.
class BucketFiller {
 public:
  BucketFiller(const WeightLayout* layout, const Manifest& manifest, TensorSource& source)
      : layout_(layout),
        manifest_(manifest),
        source_(source),
        digests_(manifest.size(), DigestOf(nullptr, 0)) {}

  absl::Status Fill(const Bucket& bucket, std::byte* slot, PublishReport* report) {
    for (const BucketEntry& entry : bucket.entries) {
      const ManifestTensor& tensor = manifest_[entry.tensor];
      std::byte* const to = slot + entry.offset;
      absl::StatusOr<const void*> rows = nullptr;
      {
        const Stopwatch watch(&report->gather_seconds);
        rows = source_.GatherRows(
            {&layout_->places()[entry.tensor], entry.row, entry.rows, tensor.row_bytes()}, to);
      }
      if (!rows.ok()) return Annotate(rows.status(), fmt::format("gathering {}", tensor.name));
      const Stopwatch watch(&report->fill_seconds);
      if (entry.row == 0) digest_ = SequentialDigest();
      DigestAndCopy(static_cast<const std::byte*>(*rows), entry.rows * tensor.row_bytes(), &digest_,
                    to);
      if (entry.row + entry.rows == tensor.rows()) digests_[entry.tensor] = digest_.Finish();
    }
    return absl::OkStatus();
  }

  std::vector<Digest>& digests() { return digests_; }

 private:
  const WeightLayout* const layout_;
  const Manifest& manifest_;
  TensorSource& source_;
  SequentialDigest digest_;  // of the tensor whose rows come
  std::vector<Digest> digests_;
};

void CountChanges(const Manifest& manifest,
                  const std::vector<Digest>& before,
                  const std::vector<Digest>& now,
                  PublishReport* report) {
  int64_t changed_bytes = 0;
  std::string all;
  for (size_t t = 0; t < now.size(); ++t) {
    all += now[t].Bytes();
    if (t < before.size() && before[t] == now[t]) continue;
    ++report->changed_tensors;
    changed_bytes += manifest[t].bytes();
  }
  report->digest = DigestOf(all.data(), static_cast<int64_t>(all.size())).Hex();
  if (report->bytes > 0) {
    report->changed_bytes_share = static_cast<double>(changed_bytes) / report->bytes;
  }
}

}  // namespace

absl::StatusOr<const void*> TensorSource::GatherRows(const TensorRows& rows, std::byte* /*dest*/) {
  if (rows.row == 0) {
    TANDEM_ASSIGN_OR_RETURN(const void* tensor, Gather(*rows.place));
    gathered_ = static_cast<const std::byte*>(tensor);
  }
  return gathered_ + rows.row * rows.row_bytes;
}

absl::StatusOr<PublishReport> WeightPublisher::Publish(int64_t version,
                                                       TensorSource& source,
                                                       UpdateClient* client) {
  PublishReport report;
  report.version = version;
  const absl::Time start = absl::Now();
  // Larger than any before, over restarts of this process too.
  generation_ = std::max(generation_ + 1, absl::ToUnixMicros(start));
  const Manifest manifest = ManifestOf(*layout_);
  // The same plan, or the same refusal, on every rank, whether it publishes or not.
  TANDEM_ASSIGN_OR_RETURN(const std::vector<Bucket> buckets,
                          PlanBuckets(manifest, options_.slot_bytes));
  report.bytes = ManifestBytes(manifest);
  report.tensors = static_cast<int64_t>(manifest.size());
  report.buckets = client == nullptr ? 0 : static_cast<int64_t>(buckets.size());

  Transaction transaction(client, buckets, &report);
  transaction.Begin({version, generation_, manifest}, options_);
  BucketFiller filler(layout_, manifest, source);
  for (const Bucket& bucket : buckets) {
    const absl::Status filled = filler.Fill(bucket, transaction.Slot(bucket.bytes), &report);
    if (!filled.ok()) {
      transaction.Abort(std::string(filled.message()));
      return filled;
    }
    transaction.Filled(bucket);
  }
  CountChanges(manifest, digests_, filler.digests(), &report);
  digests_ = std::move(filler.digests());
  TANDEM_RETURN_IF_ERROR(transaction.Commit(digests_));
  report.seconds = absl::ToDoubleSeconds(absl::Now() - start);
  return report;
}

}  // namespace tandem
