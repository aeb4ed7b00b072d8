// Reads RUN_DIR/run.db without changing it.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <absl/status/statusor.h>
#include <absl/time/time.h>

#include "common/base/mutex.h"
#include "controller/store/run_store.h"
#include "controller/store/sqlite/database.h"
#include "controller/store/sqlite/run_queries.h"

namespace tandem {

// For tools that look at a run, finished or going on: opens the file as
// SqliteDatabase::OpenReadOnly. A file of an older build is read with what it has.
class SqliteRunReader final : public RunRecords {
 public:
  // NotFound: there is no file; DataLoss: it is damaged, or no database; FailedPrecondition: a
  // newer build wrote it. The message says what to do.
  static absl::StatusOr<std::unique_ptr<SqliteRunReader>> Open(const std::string& path);

  // As SqliteDatabase::LimitTime.
  void LimitTime(absl::Duration limit);

  // As RunQueries.
  absl::StatusOr<RunInfo> NewestRun();
  absl::StatusOr<std::vector<std::string>> ListMetricNames();
  absl::StatusOr<std::map<std::string, std::vector<std::pair<int64_t, double>>>> ReadMetrics(
      const std::vector<std::string>& names, int64_t first_step, int64_t last_step);

  absl::StatusOr<std::vector<StepRecord>> ListSteps(const StepQuery& query) override;
  absl::StatusOr<SampleRecordPage> ListSamples(const SampleQuery& query) override;
  absl::StatusOr<std::vector<EvaluationRecord>> ListEvaluations(
      const EvaluationQuery& query) override;
  absl::StatusOr<std::vector<EventRecord>> ListEvents(int64_t limit) override;

 private:
  SqliteRunReader(std::string path, std::unique_ptr<SqliteDatabase> db, RunQueries queries)
      : path_(std::move(path)), db_(std::move(db)), queries_(std::move(queries)) {}
  // Adds the path and what to do to the error of a damaged file.
  absl::Status WithRemedy(const absl::Status& status) const;

  const std::string path_;
  Mutex db_mutex_;
  const std::unique_ptr<SqliteDatabase> db_ ABSL_PT_GUARDED_BY(db_mutex_);
  const RunQueries queries_ ABSL_GUARDED_BY(db_mutex_);
};

}  // namespace tandem
