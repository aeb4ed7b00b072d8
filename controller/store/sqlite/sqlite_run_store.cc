#include "controller/store/sqlite/sqlite_run_store.h"

#include <algorithm>
#include <filesystem>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "common/base/disk_refusal.h"
#include "common/base/status.h"
#include "common/formats/files.h"
#include "controller/store/sqlite/record_json.h"
#include "controller/store/sqlite/schema.h"
#include "controller/store/time_stamp.h"

namespace tandem {
namespace {

constexpr char kTextsDropped[] = "texts_dropped_up_to_step";
// Steps whose texts one transaction empties, at most. More than one, so that the backlog after
// lowering trainer.steps_with_texts shrinks with each step.
constexpr int64_t kMaxStepsToEmpty = 32;

absl::StatusOr<std::unique_ptr<SqliteDatabase>> OpenMigrated(const std::string& path) {
  absl::StatusOr<std::unique_ptr<SqliteDatabase>> db = SqliteDatabase::Open(path);
  absl::Status status = db.status();
  if (status.ok()) status = Annotate(MigrateStore(db->get()), path);
  if (!absl::IsDataLoss(status)) return status.ok() ? std::move(db) : status;
  return MakeStatus(status.code(),
                    "{}: bring back a copy of {}, or move it away: the run continues from its "
                    "checkpoint without it, and records only what follows",
                    std::string(status.message()), path);
}

// Writes the log's rows into the file, as far as no reader needs older ones.
absl::Status EmptyLog(const std::string& path) {
  TANDEM_ASSIGN_OR_RETURN(const auto db, SqliteDatabase::Open(path));
  return db->Execute("PRAGMA wal_checkpoint(TRUNCATE)");
}

}  // namespace

absl::Status SettleStore(const std::string& path) {
  if (!PathExists(path)) return absl::OkStatus();
  const absl::Status emptied = EmptyLog(path);
  if (absl::IsDataLoss(emptied) && !IsDiskRefused(emptied)) return absl::OkStatus();
  std::error_code error;
  const auto log_bytes = std::filesystem::file_size(path + "-wal", error);
  if (error || log_bytes == 0) return absl::OkStatus();
  const std::string what = fmt::format(
      "the newest rows of {0} are in {0}-wal alone, and cannot be brought into {0}", path);
  return emptied.ok() ? FailedPrecondition("{}: close the program that reads it", what)
                      : Annotate(emptied, what);
}

absl::StatusOr<std::unique_ptr<SqliteRunStore>> SqliteRunStore::Open(const std::string& path,
                                                                     int64_t steps_with_texts) {
  TANDEM_ASSIGN_OR_RETURN(std::unique_ptr<SqliteDatabase> db, OpenMigrated(path));
  TANDEM_ASSIGN_OR_RETURN(RunQueries queries, RunQueries::Look(db.get()));
  return std::unique_ptr<SqliteRunStore>(
      new SqliteRunStore(std::move(db), std::move(queries), steps_with_texts));
}

absl::Status SqliteRunStore::ContinueIn(const std::string& path) {
  TANDEM_ASSIGN_OR_RETURN(std::unique_ptr<SqliteDatabase> db, OpenMigrated(path));
  TANDEM_ASSIGN_OR_RETURN(RunQueries queries, RunQueries::Look(db.get()));
  const MutexLock lock(db_mutex_);
  db_ = std::move(db);
  queries_ = std::move(queries);
  metric_ids_.clear();
  return absl::OkStatus();
}

absl::Status SqliteRunStore::RecordRun(const RunInfo& info) {
  const MutexLock lock(db_mutex_);
  TANDEM_ASSIGN_OR_RETURN(
      SqliteStatement insert,
      db_->Prepare(
          "INSERT INTO runs (run_id, started_at, run_dir, build, numerics_class, config_yaml, "
          "total_steps, first_step, kernel_sets, memory_plan, ended_at, outcome, error, attempt) "
          "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, "
          "(SELECT COALESCE(MAX(attempt), 0) + 1 FROM runs)) ON CONFLICT (run_id) DO UPDATE SET "
          "started_at = excluded.started_at, run_dir = excluded.run_dir, build = excluded.build, "
          "numerics_class = excluded.numerics_class, config_yaml = excluded.config_yaml, "
          "total_steps = excluded.total_steps, first_step = excluded.first_step, "
          "kernel_sets = excluded.kernel_sets, memory_plan = excluded.memory_plan, "
          "ended_at = excluded.ended_at, outcome = excluded.outcome, error = excluded.error"));
  return insert
      .Bind(info.run_id, info.started_at, info.run_dir, info.build, info.numerics_class,
            info.config_yaml, info.total_steps, info.first_step, info.kernel_sets, info.memory_plan,
            info.ended_at, RunOutcomeName(info.outcome), info.error)
      .Run();
}

absl::Status SqliteRunStore::DeleteStep(const std::string& table, int64_t step) {
  return db_->Execute(fmt::format("DELETE FROM {} WHERE step = {}", table, step));
}

absl::Status SqliteRunStore::InsertPhases(const StepRecord& step) {
  TANDEM_ASSIGN_OR_RETURN(SqliteStatement insert,
                          db_->Prepare("INSERT INTO phases VALUES (?, ?, ?, ?, ?, ?)"));
  for (size_t i = 0; i < step.phases.size(); ++i) {
    const PhaseTime& phase = step.phases[i];
    TANDEM_RETURN_IF_ERROR(insert
                               .Bind(step.step, static_cast<int64_t>(i), phase.phase, phase.seconds,
                                     phase.peak_bytes, WorkersToJson(phase.workers))
                               .Run());
  }
  return absl::OkStatus();
}

absl::Status SqliteRunStore::InsertGroups(const StepRecord& step) {
  TANDEM_ASSIGN_OR_RETURN(SqliteStatement insert,
                          db_->Prepare("INSERT INTO groups VALUES (?, ?, ?, ?, ?, ?)"));
  for (const GroupRecord& group : step.groups) {
    TANDEM_RETURN_IF_ERROR(insert
                               .Bind(step.step, group.group, group.samples, group.reward_mean,
                                     group.reward_std, GroupKindName(group.kind))
                               .Run());
  }
  return absl::OkStatus();
}

absl::StatusOr<int64_t> SqliteRunStore::MetricId(const std::string& name) {
  const auto found = metric_ids_.find(name);
  if (found != metric_ids_.end()) return found->second;
  TANDEM_ASSIGN_OR_RETURN(SqliteStatement insert,
                          db_->Prepare("INSERT OR IGNORE INTO metric_names (name) VALUES (?)"));
  TANDEM_RETURN_IF_ERROR(insert.Bind(name).Run());
  TANDEM_ASSIGN_OR_RETURN(SqliteStatement select,
                          db_->Prepare("SELECT id FROM metric_names WHERE name = ?"));
  TANDEM_RETURN_IF_ERROR(select.Bind(name).Step().status());
  return metric_ids_[name] = select.Int(0);
}

absl::Status SqliteRunStore::InsertMetrics(const StepRecord& step) {
  TANDEM_ASSIGN_OR_RETURN(SqliteStatement insert,
                          db_->Prepare("INSERT OR REPLACE INTO metric_values VALUES (?, ?, ?)"));
  for (const auto& [name, value] : step.metrics) {
    TANDEM_ASSIGN_OR_RETURN(const int64_t id, MetricId(name));
    TANDEM_RETURN_IF_ERROR(insert.Bind(id, step.step, value).Run());
  }
  return absl::OkStatus();
}

absl::Status SqliteRunStore::RecordStepOnce(const StepRecord& step) {
  TANDEM_ASSIGN_OR_RETURN(SqliteTransaction transaction, SqliteTransaction::Begin(db_.get()));
  TANDEM_RETURN_IF_ERROR(DeleteStep("phases", step.step));
  TANDEM_RETURN_IF_ERROR(DeleteStep("groups", step.step));
  TANDEM_ASSIGN_OR_RETURN(
      SqliteStatement insert,
      db_->Prepare("INSERT OR REPLACE INTO steps (step, version, finished_at, metrics) "
                   "VALUES (?, ?, ?, ?)"));
  TANDEM_RETURN_IF_ERROR(insert
                             .Bind(step.step, step.version, MicrosOfStamp(step.finished_at),
                                   NumbersToJson(step.metrics))
                             .Run());
  TANDEM_RETURN_IF_ERROR(InsertPhases(step));
  TANDEM_RETURN_IF_ERROR(InsertGroups(step));
  TANDEM_RETURN_IF_ERROR(InsertMetrics(step));
  return transaction.Commit();
}

absl::Status SqliteRunStore::RecordStep(const StepRecord& step) {
  const MutexLock lock(db_mutex_);
  const absl::Status recorded = RecordStepOnce(step);
  // What was rolled back may have had new names.
  if (!recorded.ok()) metric_ids_.clear();
  return recorded;
}

absl::Status SqliteRunStore::InsertSample(SqliteStatement& insert,
                                          int64_t step,
                                          const SampleRecord& sample) {
  return insert
      .Bind(step, static_cast<int64_t>(sample.sample_id), sample.group, sample.index, sample.prompt,
            sample.response, sample.ground_truth, sample.reward, sample.response_tokens,
            static_cast<int64_t>(sample.finish_reason), sample.weight_version, sample.advantage,
            NumbersToJson(sample.reward_terms), sample.token_offset,
            SegmentsToJson(sample.segments))
      .Run();
}

absl::Status SqliteRunStore::RecordSamples(int64_t step, const std::vector<SampleRecord>& samples) {
  const MutexLock lock(db_mutex_);
  TANDEM_ASSIGN_OR_RETURN(SqliteTransaction transaction, SqliteTransaction::Begin(db_.get()));
  TANDEM_RETURN_IF_ERROR(DeleteStep("samples", step));
  TANDEM_ASSIGN_OR_RETURN(
      SqliteStatement insert,
      db_->Prepare("INSERT INTO samples VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"));
  for (const SampleRecord& sample : samples) {
    TANDEM_RETURN_IF_ERROR(InsertSample(insert, step, sample));
  }
  TANDEM_RETURN_IF_ERROR(DropTexts(step));
  return transaction.Commit();
}

absl::StatusOr<int64_t> SqliteRunStore::TextsDroppedUpTo() {
  TANDEM_ASSIGN_OR_RETURN(SqliteStatement select,
                          db_->Prepare("SELECT value FROM marks WHERE name = ?"));
  TANDEM_ASSIGN_OR_RETURN(const bool row, select.Bind(std::string(kTextsDropped)).Step());
  return row ? select.Int(0) : -1;
}

absl::Status SqliteRunStore::SetTextsDroppedUpTo(int64_t step) {
  TANDEM_ASSIGN_OR_RETURN(SqliteStatement insert,
                          db_->Prepare("INSERT OR REPLACE INTO marks VALUES (?, ?)"));
  return insert.Bind(std::string(kTextsDropped), step).Run();
}

absl::Status SqliteRunStore::DropTexts(int64_t step) {
  const int64_t newest_without = step - steps_with_texts_;
  if (steps_with_texts_ == 0 || newest_without < 0) return absl::OkStatus();
  // The mark keeps a step's cost independent of the number of steps before it.
  TANDEM_ASSIGN_OR_RETURN(const int64_t dropped, TextsDroppedUpTo());
  if (dropped >= newest_without) return absl::OkStatus();
  TANDEM_ASSIGN_OR_RETURN(const int64_t first, FirstSampledAfter(dropped));
  const int64_t last = std::min(newest_without, first + kMaxStepsToEmpty - 1);
  for (const char* table : {"samples", "undone_samples"}) {
    TANDEM_RETURN_IF_ERROR(db_->Execute(fmt::format(
        "UPDATE {} SET prompt = NULL, response = NULL, ground_truth = NULL WHERE step >= {} AND "
        "step <= {}",
        table, first, last)));
  }
  return SetTextsDroppedUpTo(last);
}

absl::StatusOr<int64_t> SqliteRunStore::FirstSampledAfter(int64_t step) {
  TANDEM_ASSIGN_OR_RETURN(
      SqliteStatement select,
      db_->Prepare("SELECT MIN(first) FROM (SELECT MIN(step) AS first FROM samples WHERE step > ? "
                   "UNION ALL SELECT MIN(step) FROM undone_samples WHERE step > ?)"));
  TANDEM_RETURN_IF_ERROR(select.Bind(step, step).Step().status());
  return select.IsNull(0) ? step + 1 : select.Int(0);
}

absl::Status SqliteRunStore::RecordEvaluation(const EvaluationRecord& evaluation) {
  const MutexLock lock(db_mutex_);
  TANDEM_ASSIGN_OR_RETURN(
      SqliteStatement insert,
      db_->Prepare("INSERT OR REPLACE INTO evaluations VALUES (?, ?, ?, ?, ?, ?)"));
  return insert
      .Bind(evaluation.step, evaluation.version, evaluation.prompts, evaluation.samples,
            evaluation.seconds, NumbersToJson(evaluation.metrics))
      .Run();
}

absl::Status SqliteRunStore::RecordEvents(const std::vector<EventRecord>& events) {
  const MutexLock lock(db_mutex_);
  TANDEM_ASSIGN_OR_RETURN(SqliteTransaction transaction, SqliteTransaction::Begin(db_.get()));
  TANDEM_ASSIGN_OR_RETURN(SqliteStatement insert,
                          db_->Prepare("INSERT INTO events (time, step, severity, kind, worker, "
                                       "text) VALUES (?, ?, ?, ?, ?, ?)"));
  for (const EventRecord& event : events) {
    TANDEM_RETURN_IF_ERROR(
        insert.Bind(event.time_us, event.step, event.severity, event.kind, event.worker, event.text)
            .Run());
  }
  return transaction.Commit();
}

absl::Status SqliteRunStore::UndoAfter(int64_t step, int64_t generation) {
  const MutexLock lock(db_mutex_);
  TANDEM_ASSIGN_OR_RETURN(SqliteTransaction transaction, SqliteTransaction::Begin(db_.get()));
  for (const RecordTable& table : RecordTables()) {
    const std::string columns = fmt::format("{}", fmt::join(table.columns, ", "));
    TANDEM_RETURN_IF_ERROR(db_->Execute(fmt::format(
        "INSERT INTO undone_{0} (undone_by, {1}) SELECT {2}, {1} FROM {0} WHERE step > {3}",
        table.name, columns, generation, step)));
    TANDEM_RETURN_IF_ERROR(
        db_->Execute(fmt::format("DELETE FROM {} WHERE step > {}", table.name, step)));
  }
  // By every name, so that SQLite seeks; undone steps keep their metrics as text.
  TANDEM_RETURN_IF_ERROR(db_->Execute(
      fmt::format("DELETE FROM metric_values WHERE name_id IN (SELECT id FROM metric_names) AND "
                  "step > {}",
                  step)));
  TANDEM_ASSIGN_OR_RETURN(const int64_t dropped, TextsDroppedUpTo());
  if (dropped > step) TANDEM_RETURN_IF_ERROR(SetTextsDroppedUpTo(step));
  return transaction.Commit();
}

absl::StatusOr<std::vector<StepRecord>> SqliteRunStore::ListSteps(const StepQuery& query) {
  const MutexLock lock(db_mutex_);
  return queries_.ListSteps(query);
}

absl::StatusOr<SampleRecordPage> SqliteRunStore::ListSamples(const SampleQuery& query) {
  const MutexLock lock(db_mutex_);
  return queries_.ListSamples(query);
}

absl::StatusOr<std::vector<EvaluationRecord>> SqliteRunStore::ListEvaluations(
    const EvaluationQuery& query) {
  const MutexLock lock(db_mutex_);
  return queries_.ListEvaluations(query);
}

absl::StatusOr<std::vector<EventRecord>> SqliteRunStore::ListEvents(int64_t limit) {
  const MutexLock lock(db_mutex_);
  return queries_.ListEvents(limit);
}

}  // namespace tandem
