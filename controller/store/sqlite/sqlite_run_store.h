// The RunStore in SQLite: RUN_DIR/run.db.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <absl/status/status.h>

#include "common/base/mutex.h"
#include "controller/store/run_store.h"
#include "controller/store/sqlite/database.h"

namespace tandem {

// The memory ledgers of the workers in a phase as JSON text, for a column of the store.
std::string WorkersToJson(const std::vector<WorkerMemory>& workers);
// Empty if WorkersToJson did not write the text.
std::vector<WorkerMemory> WorkersFromJson(const std::string& text);

// The schema version of run.db that this build writes (PRAGMA user_version).
int64_t StoreSchemaVersion();

// Brings all rows from SQLite's log into the file, so that the file alone is the database. Does
// nothing where the file is none; it may be moved as it is then.
void SettleStore(const std::string& path);

// Migrates the file to StoreSchemaVersion, with one transaction per version. FailedPrecondition: a
// newer build has written the file, which is not changed.
absl::Status MigrateStore(SqliteDatabase* db);

// The RunStore on SQLite, in run_dir/run.db. One connection is guarded by one mutex: a step's write
// takes milliseconds, and reads are paged.
class SqliteRunStore final : public RunStore {
 public:
  // Creates or migrates the file; ":memory:" keeps nothing. Errors as SqliteDatabase and
  // MigrateStore.
  static absl::StatusOr<std::unique_ptr<SqliteRunStore>> Open(const std::string& path);
  // Goes on in another file, opened as by Open. Rows of the one before are not taken along.
  absl::Status ContinueIn(const std::string& path);

  // The id, start time, directory and memory plan of the run that was recorded last. NotFound:
  // there is none.
  absl::StatusOr<RunInfo> NewestRun();

  absl::Status RecordRun(const RunInfo& info) override;
  absl::Status RecordStep(const StepRecord& step) override;
  absl::Status RecordSamples(int64_t step, const std::vector<SampleRecord>& samples) override;
  absl::Status RecordEvaluation(const EvaluationRecord& evaluation) override;
  absl::Status TruncateAfter(int64_t step) override;
  absl::StatusOr<std::vector<StepRecord>> ListSteps(int64_t first_step,
                                                    int64_t last_step,
                                                    int64_t limit) override;
  absl::StatusOr<SampleRecordPage> ListSamples(int64_t step,
                                               int64_t limit,
                                               int64_t offset) override;
  absl::StatusOr<std::vector<EvaluationRecord>> ListEvaluations() override;

 private:
  explicit SqliteRunStore(std::unique_ptr<SqliteDatabase> db) : db_(std::move(db)) {}
  absl::Status DeleteStep(const std::string& table, int64_t step)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(db_mutex_);
  absl::Status InsertPhases(const StepRecord& step) ABSL_EXCLUSIVE_LOCKS_REQUIRED(db_mutex_);
  absl::StatusOr<std::vector<PhaseTime>> PhasesOf(int64_t step)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(db_mutex_);

  Mutex db_mutex_;
  std::unique_ptr<SqliteDatabase> db_ ABSL_PT_GUARDED_BY(db_mutex_);
};

}  // namespace tandem
