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

  // The tensors come in manifest order, and so do the entries of the buckets.
  void Send(int32_t tensor, int64_t row_bytes, const void* rows) {
    while (active() && bucket_ < buckets_.size()) {
      const Bucket& bucket = buckets_[bucket_];
      if (bucket.entries[entry_].tensor != tensor) return;
      if (entry_ == 0) Check(Timed([&] { return client_->WaitApply(slot()); }));
      if (!active()) return;
      Copy(bucket.entries[entry_], row_bytes, rows);
      if (++entry_ < bucket.entries.size()) continue;
      FaultPoint("sync.bucket");
      Check(client_->StartApply(slot(), bucket.entries));
      entry_ = 0;
      ++bucket_;
    }
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

  void Copy(const BucketEntry& entry, int64_t row_bytes, const void* rows) {
    const Stopwatch watch(&report_->copy_seconds);
    memcpy(slots_->slot(slot()) + entry.offset,
           static_cast<const std::byte*>(rows) + entry.row * row_bytes, entry.rows * row_bytes);
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
  size_t bucket_ = 0;  // that is being filled
  size_t entry_ = 0;   // of that bucket, the next
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
  std::vector<Digest> digests;
  for (size_t t = 0; t < manifest.size(); ++t) {
    absl::StatusOr<const void*> rows = nullptr;
    {
      const Stopwatch watch(&report.gather_seconds);
      rows = source.Gather(layout_->places()[t]);
    }
    if (!rows.ok()) {
      transaction.Abort(std::string(rows.status().message()));
      return Annotate(rows.status(), fmt::format("gathering {}", manifest[t].name));
    }
    {
      const Stopwatch watch(&report.digest_seconds);
      digests.push_back(DigestOf(*rows, manifest[t].bytes()));
    }
    transaction.Send(static_cast<int32_t>(t), manifest[t].row_bytes(), *rows);
  }
  CountChanges(manifest, digests_, digests, &report);
  digests_ = std::move(digests);
  TANDEM_RETURN_IF_ERROR(transaction.Commit(digests_));
  report.seconds = absl::ToDoubleSeconds(absl::Now() - start);
  return report;
}

}  // namespace tandem
