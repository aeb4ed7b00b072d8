// Workers' ledgers of a phase as JSON text, for a column of the store.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <absl/status/status.h>

#include "common/base/mutex.h"
#include "controller/store/run_store.h"
#include "controller/store/sqlite.h"

namespace tandem {

std::string WorkersToJson(const std::vector<WorkerMemory>& workers);
// Empty where the text is none of WorkersToJson's.
std::vector<WorkerMemory> WorkersFromJson(const std::string& text);

// The schema of run.db and how older files come up to it.

// The version this build writes (PRAGMA user_version).
int64_t StoreSchemaVersion();

// Brings the file to StoreSchemaVersion, one migration per transaction. FailedPrecondition: the
// file was written by a newer build; nothing is changed then.
absl::Status MigrateStore(SqliteDatabase* db);

// The RunStore on SQLite: run_dir/run.db.

// One connection behind one mutex: a step's write takes milliseconds, reads are pages.
class SqliteRunStore final : public RunStore {
 public:
  // Makes or migrates the file. Errors as SqliteDatabase and MigrateStore.
  static absl::StatusOr<std::unique_ptr<SqliteRunStore>> Open(const std::string& path);

  // Id, start, directory and memory plan of the run that wrote last. NotFound: there is none.
  absl::StatusOr<RunInfo> NewestRun();

  absl::Status RecordRun(const RunInfo& info) override;
  absl::Status RecordStep(const StepRecord& step) override;
  absl::Status RecordSamples(int64_t step, const std::vector<SampleRecord>& samples) override;
  absl::Status RecordEvaluation(const EvaluationRecord& evaluation) override;
  absl::Status TruncateAfter(int64_t step) override;
  absl::StatusOr<std::vector<StepRecord>> ListSteps(int64_t first_step, int64_t last_step) override;
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
  const std::unique_ptr<SqliteDatabase> db_ ABSL_PT_GUARDED_BY(db_mutex_);
};

}  // namespace tandem
