// The RunStore in SQLite: RUN_DIR/run.db.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <absl/status/status.h>

#include "common/base/mutex.h"
#include "controller/store/run_store.h"
#include "controller/store/sqlite/database.h"
#include "controller/store/sqlite/run_queries.h"

namespace tandem {

// Brings all rows from SQLite's log into the file, so that the file alone is the database. Does
// nothing if the file is not a database; it can be moved as it is. If rows remain in the log:
// errors as SqliteDatabase, and FailedPrecondition if another program reads the file.
absl::Status SettleStore(const std::string& path);

// The RunStore on SQLite, in run_dir/run.db. One connection is guarded by one mutex: a step's write
// takes milliseconds, and reads are paged.
class SqliteRunStore final : public RunStore {
 public:
  // Creates or migrates the file; ":memory:" keeps nothing. `steps_with_texts`: the newest steps
  // whose samples keep prompt, response and ground truth; 0: all. Errors as SqliteDatabase and
  // MigrateStore.
  static absl::StatusOr<std::unique_ptr<SqliteRunStore>> Open(const std::string& path,
                                                              int64_t steps_with_texts = 0);
  // Goes on in another file, opened as by Open. Rows of the one before are not taken along.
  absl::Status ContinueIn(const std::string& path);

  absl::Status RecordRun(const RunInfo& info) override;
  absl::Status RecordStep(const StepRecord& step) override;
  absl::Status RecordSamples(int64_t step, const std::vector<SampleRecord>& samples) override;
  absl::Status RecordEvaluation(const EvaluationRecord& evaluation) override;
  absl::Status RecordEvents(const std::vector<EventRecord>& events) override;
  absl::Status UndoAfter(int64_t step, int64_t generation) override;
  absl::StatusOr<std::vector<StepRecord>> ListSteps(const StepQuery& query) override;
  absl::StatusOr<SampleRecordPage> ListSamples(const SampleQuery& query) override;
  absl::StatusOr<std::vector<EvaluationRecord>> ListEvaluations(
      const EvaluationQuery& query) override;
  absl::StatusOr<std::vector<EventRecord>> ListEvents(int64_t limit) override;

 private:
  SqliteRunStore(std::unique_ptr<SqliteDatabase> db, RunQueries queries, int64_t steps_with_texts)
      : steps_with_texts_(steps_with_texts), db_(std::move(db)), queries_(std::move(queries)) {}
  absl::Status DeleteStep(const std::string& table, int64_t step)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(db_mutex_);
  absl::Status InsertPhases(const StepRecord& step) ABSL_EXCLUSIVE_LOCKS_REQUIRED(db_mutex_);
  absl::Status InsertGroups(const StepRecord& step) ABSL_EXCLUSIVE_LOCKS_REQUIRED(db_mutex_);
  absl::Status InsertHistograms(const StepRecord& step) ABSL_EXCLUSIVE_LOCKS_REQUIRED(db_mutex_);
  absl::Status InsertUpdates(const StepRecord& step) ABSL_EXCLUSIVE_LOCKS_REQUIRED(db_mutex_);
  absl::Status InsertSyncs(const StepRecord& step) ABSL_EXCLUSIVE_LOCKS_REQUIRED(db_mutex_);
  absl::Status InsertLoad(const StepRecord& step) ABSL_EXCLUSIVE_LOCKS_REQUIRED(db_mutex_);
  absl::Status InsertResponses(const EvaluationRecord& evaluation)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(db_mutex_);
  absl::Status InsertMetrics(const StepRecord& step) ABSL_EXCLUSIVE_LOCKS_REQUIRED(db_mutex_);
  // The number of a metric in metric_names, which is made where it is missing.
  absl::StatusOr<int64_t> MetricId(const std::string& name)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(db_mutex_);
  absl::Status RecordStepOnce(const StepRecord& step) ABSL_EXCLUSIVE_LOCKS_REQUIRED(db_mutex_);
  absl::Status InsertSamples(int64_t step, const std::vector<SampleRecord>& samples)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(db_mutex_);
  // Empties the texts of the oldest steps that are too old once `step` is recorded, at most
  // kMaxStepsToEmpty of them.
  absl::Status DropTexts(int64_t step) ABSL_EXCLUSIVE_LOCKS_REQUIRED(db_mutex_);
  // The oldest step after `step` that has samples, undone ones included; `step` + 1 without any.
  absl::StatusOr<int64_t> FirstSampledAfter(int64_t step) ABSL_EXCLUSIVE_LOCKS_REQUIRED(db_mutex_);
  // The newest step without texts; -1: none.
  absl::StatusOr<int64_t> TextsDroppedUpTo() ABSL_EXCLUSIVE_LOCKS_REQUIRED(db_mutex_);
  absl::Status SetTextsDroppedUpTo(int64_t step) ABSL_EXCLUSIVE_LOCKS_REQUIRED(db_mutex_);

  const int64_t steps_with_texts_;
  Mutex db_mutex_;
  std::unique_ptr<SqliteDatabase> db_ ABSL_PT_GUARDED_BY(db_mutex_);
  RunQueries queries_ ABSL_GUARDED_BY(db_mutex_);
  // Those of metric_names that were needed so far.
  std::map<std::string, int64_t> metric_ids_ ABSL_GUARDED_BY(db_mutex_);
};

}  // namespace tandem
