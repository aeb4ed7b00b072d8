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
#include "controller/store/sqlite/prompt_table.h"
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

namespace {

// Into the columns of RecordTables, in their order.
absl::StatusOr<SqliteStatement> PrepareInsert(SqliteDatabase* db, const std::string& name) {
  const std::vector<std::string>& columns = TableNamed(name).columns;
  return db->Prepare(fmt::format("INSERT INTO {} ({}) VALUES ({})", name, fmt::join(columns, ", "),
                                 fmt::join(std::vector<std::string>(columns.size(), "?"), ", ")));
}

}  // namespace

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

absl::Status SqliteRunStore::InsertHistograms(const StepRecord& step) {
  TANDEM_ASSIGN_OR_RETURN(SqliteStatement insert, PrepareInsert(db_.get(), "histograms"));
  for (const auto& [name, histogram] : step.histograms) {
    TANDEM_RETURN_IF_ERROR(
        insert.Bind(step.step, name, histogram.low, histogram.high, CountsToJson(histogram.counts))
            .Run());
  }
  return absl::OkStatus();
}

absl::Status SqliteRunStore::InsertUpdates(const StepRecord& step) {
  TANDEM_ASSIGN_OR_RETURN(SqliteStatement insert, PrepareInsert(db_.get(), "updates"));
  int64_t ordinal = 0;
  for (const UpdateRecord& update : step.updates) {
    TANDEM_RETURN_IF_ERROR(insert
                               .Bind(step.step, ordinal++, update.version, update.samples,
                                     update.tokens, NumbersToJson(update.metrics))
                               .Run());
  }
  return absl::OkStatus();
}

absl::Status SqliteRunStore::InsertSyncs(const StepRecord& step) {
  TANDEM_ASSIGN_OR_RETURN(SqliteStatement insert, PrepareInsert(db_.get(), "syncs"));
  int64_t ordinal = 0;
  for (const SyncRecord& sync : step.syncs) {
    TANDEM_RETURN_IF_ERROR(insert
                               .Bind(step.step, ordinal++, sync.time_us, sync.version,
                                     int64_t{sync.rank}, sync.bytes, sync.seconds, sync.digest,
                                     int64_t{sync.checked})
                               .Run());
  }
  return absl::OkStatus();
}

absl::Status SqliteRunStore::InsertLoad(const StepRecord& step) {
  TANDEM_ASSIGN_OR_RETURN(SqliteStatement insert, PrepareInsert(db_.get(), "load"));
  int64_t ordinal = 0;
  for (const LoadRecord& record : step.load) {
    const GeneratorLoad& load = record.load;
    TANDEM_RETURN_IF_ERROR(insert
                               .Bind(step.step, ordinal++, record.time_us, int64_t{record.rank},
                                     load.queued, load.running, load.waiting, load.kv_blocks,
                                     load.kv_blocks_used, load.preemptions, load.generated_tokens,
                                     load.prefill_tokens, load.prefix_hit_tokens)
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
  for (const char* table : {"phases", "groups", "histograms", "updates", "syncs", "load"}) {
    TANDEM_RETURN_IF_ERROR(DeleteStep(table, step.step));
  }
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
  TANDEM_RETURN_IF_ERROR(InsertHistograms(step));
  TANDEM_RETURN_IF_ERROR(InsertUpdates(step));
  TANDEM_RETURN_IF_ERROR(InsertSyncs(step));
  TANDEM_RETURN_IF_ERROR(InsertLoad(step));
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

absl::Status SqliteRunStore::InsertSamples(int64_t step, const std::vector<SampleRecord>& samples) {
  TANDEM_ASSIGN_OR_RETURN(SqliteStatement insert, PrepareInsert(db_.get(), "samples"));
  TANDEM_ASSIGN_OR_RETURN(PromptTable prompts, PromptTable::Open(db_.get()));
  const std::optional<std::string> in_prompts;
  for (const SampleRecord& sample : samples) {
    TANDEM_ASSIGN_OR_RETURN(const int64_t prompt, prompts.IdOf(sample.prompt, sample.ground_truth));
    const auto response =
        sample.evicted ? std::nullopt : std::optional<std::string>(sample.response);
    TANDEM_RETURN_IF_ERROR(
        insert
            .Bind(step, static_cast<int64_t>(sample.sample_id), sample.group, sample.index,
                  in_prompts, response, in_prompts, sample.reward, sample.response_tokens,
                  static_cast<int64_t>(sample.finish_reason), sample.weight_version,
                  sample.advantage, NumbersToJson(sample.reward_terms), sample.token_offset,
                  SegmentsToJson(sample.segments), prompt, sample.prompt_tokens,
                  sample.min_log_prob, sample.repetition, sample.arrived_us,
                  int64_t{sample.evicted})
            .Run());
  }
  return absl::OkStatus();
}

absl::Status SqliteRunStore::RecordSamples(int64_t step, const std::vector<SampleRecord>& samples) {
  const MutexLock lock(db_mutex_);
  TANDEM_ASSIGN_OR_RETURN(SqliteTransaction transaction, SqliteTransaction::Begin(db_.get()));
  TANDEM_RETURN_IF_ERROR(DeleteStep("samples", step));
  TANDEM_RETURN_IF_ERROR(InsertSamples(step, samples));
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
  // Rows of version 5 and before have prompt and ground truth in themselves.
  for (const char* table : {"samples", "undone_samples"}) {
    TANDEM_RETURN_IF_ERROR(db_->Execute(
        fmt::format("UPDATE {} SET prompt = NULL, ground_truth = NULL WHERE step BETWEEN {} AND {}",
                    table, first, last)));
  }
  for (const std::string& table : TablesOfTexts()) {
    TANDEM_RETURN_IF_ERROR(db_->Execute(fmt::format(
        "UPDATE {} SET response = NULL WHERE step BETWEEN {} AND {}", table, first, last)));
  }
  TANDEM_RETURN_IF_ERROR(ForgetPrompts(db_.get(), first, last));
  return SetTextsDroppedUpTo(last);
}

absl::StatusOr<int64_t> SqliteRunStore::FirstSampledAfter(int64_t step) {
  std::vector<std::string> firsts;
  for (const std::string& table : TablesOfTexts()) {
    firsts.push_back(fmt::format("SELECT MIN(step) AS first FROM {} WHERE step > {}", table, step));
  }
  TANDEM_ASSIGN_OR_RETURN(
      SqliteStatement select,
      db_->Prepare(fmt::format("SELECT MIN(first) FROM ({})", fmt::join(firsts, " UNION ALL "))));
  TANDEM_RETURN_IF_ERROR(select.Step().status());
  return select.IsNull(0) ? step + 1 : select.Int(0);
}

absl::Status SqliteRunStore::InsertResponses(const EvaluationRecord& evaluation) {
  TANDEM_ASSIGN_OR_RETURN(SqliteStatement insert, PrepareInsert(db_.get(), "eval_samples"));
  TANDEM_ASSIGN_OR_RETURN(PromptTable prompts, PromptTable::Open(db_.get()));
  for (const SampleRecord& sample : evaluation.responses) {
    TANDEM_ASSIGN_OR_RETURN(const int64_t prompt, prompts.IdOf(sample.prompt, sample.ground_truth));
    TANDEM_RETURN_IF_ERROR(insert
                               .Bind(evaluation.step, sample.group, sample.index,
                                     static_cast<int64_t>(sample.sample_id), prompt,
                                     sample.prompt_tokens, sample.response, sample.reward,
                                     sample.response_tokens,
                                     static_cast<int64_t>(sample.finish_reason),
                                     sample.weight_version, NumbersToJson(sample.reward_terms),
                                     sample.min_log_prob, sample.repetition, sample.arrived_us)
                               .Run());
  }
  return absl::OkStatus();
}

absl::Status SqliteRunStore::RecordEvaluation(const EvaluationRecord& evaluation) {
  const MutexLock lock(db_mutex_);
  TANDEM_ASSIGN_OR_RETURN(SqliteTransaction transaction, SqliteTransaction::Begin(db_.get()));
  TANDEM_RETURN_IF_ERROR(DeleteStep("eval_samples", evaluation.step));
  TANDEM_RETURN_IF_ERROR(InsertResponses(evaluation));
  TANDEM_ASSIGN_OR_RETURN(
      SqliteStatement insert,
      db_->Prepare("INSERT OR REPLACE INTO evaluations VALUES (?, ?, ?, ?, ?, ?)"));
  TANDEM_RETURN_IF_ERROR(insert
                             .Bind(evaluation.step, evaluation.version, evaluation.prompts,
                                   evaluation.samples, evaluation.seconds,
                                   NumbersToJson(evaluation.metrics))
                             .Run());
  return transaction.Commit();
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
