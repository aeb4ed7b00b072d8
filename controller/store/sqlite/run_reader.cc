#include "controller/store/sqlite/run_reader.h"

#include <cerrno>
#include <cstring>
#include <utility>

#include <sys/stat.h>

#include "common/base/status.h"

namespace tandem {
namespace {

absl::Status DamagedStore(const std::string& path, const absl::Status& status) {
  if (!absl::IsDataLoss(status)) return status;
  return MakeStatus(status.code(),
                    "{} cannot be read: {}; it is damaged, or no database of a run: bring back a "
                    "copy of it, or name another run directory",
                    path, std::string(status.message()));
}

}  // namespace

absl::StatusOr<std::unique_ptr<SqliteRunReader>> SqliteRunReader::Open(const std::string& path) {
  struct stat found;
  if (stat(path.c_str(), &found) != 0) {
    if (errno == ENOENT) return MakeStatus(absl::StatusCode::kNotFound, "{} does not exist", path);
    return MakeStatus(IoErrorCode(errno),
                      "{} cannot be opened: {}; a run directory is its user's alone", path,
                      std::strerror(errno));
  }
  if (!S_ISREG(found.st_mode)) {
    // To open a pipe would wait for who writes it.
    return MakeStatus(absl::StatusCode::kInvalidArgument, "{} is no file", path);
  }
  absl::StatusOr<std::unique_ptr<SqliteDatabase>> db = SqliteDatabase::OpenReadOnly(path);
  if (!db.ok()) return DamagedStore(path, db.status());
  absl::StatusOr<RunQueries> queries = RunQueries::Look(db->get());
  if (!queries.ok()) return DamagedStore(path, Annotate(queries.status(), path));
  return std::unique_ptr<SqliteRunReader>(
      new SqliteRunReader(path, *std::move(db), *std::move(queries)));
}

absl::Status SqliteRunReader::WithRemedy(const absl::Status& status) const {
  return DamagedStore(path_, status);
}

void SqliteRunReader::LimitTime(absl::Duration limit) {
  const MutexLock lock(db_mutex_);
  db_->LimitTime(limit);
}

absl::StatusOr<RunInfo> SqliteRunReader::NewestRun() {
  const MutexLock lock(db_mutex_);
  auto run = queries_.NewestRun();
  if (!run.ok()) return WithRemedy(Annotate(run.status(), path_));
  return run;
}

absl::StatusOr<std::vector<std::string>> SqliteRunReader::ListMetricNames() {
  const MutexLock lock(db_mutex_);
  auto names = queries_.ListMetricNames();
  if (!names.ok()) return WithRemedy(names.status());
  return names;
}

absl::StatusOr<std::map<std::string, std::vector<std::pair<int64_t, double>>>>
SqliteRunReader::ReadMetrics(const std::vector<std::string>& names,
                             int64_t first_step,
                             int64_t last_step) {
  const MutexLock lock(db_mutex_);
  auto points = queries_.ReadMetrics(names, first_step, last_step);
  if (!points.ok()) return WithRemedy(points.status());
  return points;
}

absl::StatusOr<std::vector<StepRecord>> SqliteRunReader::ListSteps(const StepQuery& query) {
  const MutexLock lock(db_mutex_);
  auto steps = queries_.ListSteps(query);
  if (!steps.ok()) return WithRemedy(steps.status());
  return steps;
}

absl::StatusOr<SampleRecordPage> SqliteRunReader::ListSamples(const SampleQuery& query) {
  const MutexLock lock(db_mutex_);
  auto page = queries_.ListSamples(query);
  if (!page.ok()) return WithRemedy(page.status());
  return page;
}

absl::StatusOr<std::vector<EvaluationRecord>> SqliteRunReader::ListEvaluations(
    const EvaluationQuery& query) {
  const MutexLock lock(db_mutex_);
  auto evaluations = queries_.ListEvaluations(query);
  if (!evaluations.ok()) return WithRemedy(evaluations.status());
  return evaluations;
}

absl::StatusOr<std::vector<EventRecord>> SqliteRunReader::ListEvents(int64_t limit) {
  const MutexLock lock(db_mutex_);
  auto events = queries_.ListEvents(limit);
  if (!events.ok()) return WithRemedy(events.status());
  return events;
}

}  // namespace tandem
