// A run's store that waits for its disk instead of failing.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include "controller/store/disk/disk_wait.h"
#include "controller/store/run_store.h"

namespace tandem {

// Passes all calls on; writes are repeated as DiskWait says. Each of them is one transaction, of
// which a refused one leaves nothing.
class WaitingRunStore final : public RunStore {
 public:
  // `folder` has the store's file; `wait` must outlive the object.
  WaitingRunStore(std::unique_ptr<RunStore> store, std::string folder, DiskWait& wait)
      : store_(std::move(store)),
        need_{.what = "run.db", .folder = std::move(folder)},
        wait_(wait) {}

  absl::Status RecordRun(const RunInfo& info) override {
    return wait_.Until(need_, [&] { return store_->RecordRun(info); });
  }
  absl::Status RecordStep(const StepRecord& step) override {
    return wait_.Until(need_, [&] { return store_->RecordStep(step); });
  }
  absl::Status RecordSamples(int64_t step, const std::vector<SampleRecord>& samples) override {
    return wait_.Until(need_, [&] { return store_->RecordSamples(step, samples); });
  }
  absl::Status RecordEvaluation(const EvaluationRecord& evaluation) override {
    return wait_.Until(need_, [&] { return store_->RecordEvaluation(evaluation); });
  }
  // Not waited for: a wait for the disk is itself an event (EventLog keeps what was refused).
  absl::Status RecordEvents(const std::vector<EventRecord>& events) override {
    return store_->RecordEvents(events);
  }
  absl::Status UndoAfter(int64_t step, int64_t generation) override {
    return wait_.Until(need_, [&] { return store_->UndoAfter(step, generation); });
  }
  absl::StatusOr<std::vector<StepRecord>> ListSteps(const StepQuery& query) override {
    return store_->ListSteps(query);
  }
  absl::StatusOr<SampleRecordPage> ListSamples(const SampleQuery& query) override {
    return store_->ListSamples(query);
  }
  absl::StatusOr<std::vector<EvaluationRecord>> ListEvaluations(
      const EvaluationQuery& query) override {
    return store_->ListEvaluations(query);
  }
  absl::StatusOr<std::vector<EventRecord>> ListEvents(int64_t limit) override {
    return store_->ListEvents(limit);
  }

 private:
  const std::unique_ptr<RunStore> store_;
  const DiskNeed need_;
  DiskWait& wait_;
};

}  // namespace tandem
