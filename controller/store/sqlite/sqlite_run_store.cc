#include "controller/store/sqlite/sqlite_run_store.h"

#include <algorithm>
#include <limits>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "common/base/status.h"
#include "common/formats/files.h"

namespace tandem {
namespace {

nlohmann::json LedgerToJson(const LedgerSnapshot& ledger) {
  nlohmann::json entries = nlohmann::json::array();
  for (const LedgerEntry& entry : ledger.entries) {
    entries.push_back(
        {entry.tag, static_cast<int>(entry.location), entry.current_bytes, entry.peak_bytes});
  }
  return {{"entries", entries},
          {"device", ledger.device_bytes},
          {"device_peak", ledger.device_peak_bytes},
          {"memory", ledger.memory_bytes},
          {"memory_peak", ledger.memory_peak_bytes},
          {"process", ledger.process_bytes},
          {"process_peak", ledger.process_peak_bytes},
          {"baseline", ledger.baseline_bytes},
          {"resident", ledger.resident_bytes},
          {"driver_total", ledger.driver_total_bytes},
          {"driver_free", ledger.driver_free_bytes}};
}

LedgerSnapshot LedgerFromJson(const nlohmann::json& json) {
  LedgerSnapshot ledger;
  for (const nlohmann::json& entry : json.at("entries")) {
    ledger.entries.push_back({entry.at(0).get<std::string>(),
                              static_cast<Location>(entry.at(1).get<int>()),
                              entry.at(2).get<int64_t>(), entry.at(3).get<int64_t>()});
  }
  ledger.device_bytes = json.at("device").get<int64_t>();
  ledger.device_peak_bytes = json.at("device_peak").get<int64_t>();
  ledger.memory_bytes = json.at("memory").get<int64_t>();
  ledger.memory_peak_bytes = json.at("memory_peak").get<int64_t>();
  ledger.process_bytes = json.at("process").get<int64_t>();
  ledger.process_peak_bytes = json.at("process_peak").get<int64_t>();
  ledger.baseline_bytes = json.at("baseline").get<int64_t>();
  ledger.resident_bytes = json.at("resident").get<int64_t>();
  // Records that were written before GPUs were supported lack both fields.
  ledger.driver_total_bytes = json.value("driver_total", int64_t{0});
  ledger.driver_free_bytes = json.value("driver_free", int64_t{0});
  return ledger;
}

}  // namespace

std::string WorkersToJson(const std::vector<WorkerMemory>& workers) {
  nlohmann::json json = nlohmann::json::array();
  for (const WorkerMemory& worker : workers) {
    json.push_back({{"role", worker.trainer ? "trainer" : "rollout"},
                    {"rank", worker.rank},
                    {"ledger", LedgerToJson(worker.ledger)}});
  }
  return json.dump();
}

std::vector<WorkerMemory> WorkersFromJson(const std::string& text) {
  std::vector<WorkerMemory> workers;
  try {
    for (const nlohmann::json& worker : nlohmann::json::parse(text)) {
      workers.push_back({worker.at("role").get<std::string>() == "trainer",
                         worker.at("rank").get<int>(), LedgerFromJson(worker.at("ledger"))});
    }
  } catch (const nlohmann::json::exception&) {
    workers.clear();
  }
  return workers;
}

namespace {

// Entry i migrates version i to version i + 1. Released entries are never edited.
const std::vector<std::string>& Migrations() {
  static const std::vector<std::string> migrations = {R"sql(
    CREATE TABLE runs (
      run_id TEXT PRIMARY KEY, started_at TEXT, run_dir TEXT, build TEXT, numerics_class TEXT,
      config_yaml TEXT, total_steps INTEGER, first_step INTEGER);
    CREATE TABLE steps (
      step INTEGER PRIMARY KEY, version INTEGER, finished_at TEXT, metrics TEXT);
    CREATE TABLE phases (
      step INTEGER, ordinal INTEGER, phase TEXT, seconds REAL, peak_bytes INTEGER,
      PRIMARY KEY (step, ordinal));
    CREATE TABLE samples (
      step INTEGER, sample_id INTEGER, group_index INTEGER, sample_index INTEGER, prompt TEXT,
      response TEXT, ground_truth TEXT, reward REAL, response_tokens INTEGER,
      finish_reason INTEGER, weight_version INTEGER, advantage REAL, reward_terms TEXT,
      token_offset INTEGER, PRIMARY KEY (step, sample_id));
    CREATE TABLE evaluations (
      step INTEGER PRIMARY KEY, version INTEGER, prompts INTEGER, samples INTEGER, seconds REAL,
      metrics TEXT);
  )sql",
                                                      R"sql(
    ALTER TABLE runs ADD COLUMN kernel_sets TEXT NOT NULL DEFAULT '';
  )sql",
                                                      R"sql(
    ALTER TABLE runs ADD COLUMN memory_plan TEXT NOT NULL DEFAULT '';
    ALTER TABLE phases ADD COLUMN workers TEXT NOT NULL DEFAULT '[]';
  )sql",
                                                      R"sql(
    ALTER TABLE samples ADD COLUMN segments TEXT NOT NULL DEFAULT '[]';
  )sql"};
  return migrations;
}

absl::StatusOr<int64_t> UserVersion(SqliteDatabase* db) {
  TANDEM_ASSIGN_OR_RETURN(SqliteStatement statement, db->Prepare("PRAGMA user_version"));
  TANDEM_ASSIGN_OR_RETURN(const bool row, statement.Step());
  return row ? statement.Int(0) : 0;
}

}  // namespace

int64_t StoreSchemaVersion() { return static_cast<int64_t>(Migrations().size()); }

absl::Status MigrateStore(SqliteDatabase* db) {
  TANDEM_ASSIGN_OR_RETURN(int64_t version, UserVersion(db));
  if (version > StoreSchemaVersion()) {
    return FailedPrecondition(
        "the run's database has schema version {}, newer than this build's {}: use the build that "
        "wrote it, or another run directory",
        version, StoreSchemaVersion());
  }
  for (; version < StoreSchemaVersion(); ++version) {
    TANDEM_ASSIGN_OR_RETURN(SqliteTransaction transaction, SqliteTransaction::Begin(db));
    TANDEM_RETURN_IF_ERROR(db->Execute(Migrations()[static_cast<size_t>(version)]));
    TANDEM_RETURN_IF_ERROR(db->Execute(fmt::format("PRAGMA user_version = {}", version + 1)));
    TANDEM_RETURN_IF_ERROR(transaction.Commit());
  }
  return absl::OkStatus();
}

namespace {

using Numbers = std::map<std::string, double>;

// JSON has no NaN: nlohmann writes null, which reads back as NaN here.
std::string NumbersToJson(const Numbers& numbers) { return nlohmann::json(numbers).dump(); }

Numbers NumbersFromJson(const std::string& text) {
  Numbers numbers;
  const nlohmann::json json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return numbers;
  for (const auto& [key, value] : json.items()) {
    numbers[key] =
        value.is_number() ? value.get<double>() : std::numeric_limits<double>::quiet_NaN();
  }
  return numbers;
}

// [[begin, length, trained, weight version], ...]
std::string SegmentsToJson(const std::vector<Segment>& segments) {
  nlohmann::json json = nlohmann::json::array();
  for (const Segment& segment : segments) {
    json.push_back({segment.begin, segment.length, segment.trained, segment.weight_version});
  }
  return json.dump();
}

// Empty if SegmentsToJson did not write the text.
std::vector<Segment> SegmentsFromJson(const std::string& text) {
  const nlohmann::json json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  std::vector<Segment> segments;
  if (!json.is_array()) return segments;
  for (const nlohmann::json& entry : json) {
    const bool whole = entry.is_array() && entry.size() == 4 && entry[0].is_number_integer() &&
                       entry[1].is_number_integer() && entry[2].is_boolean() &&
                       entry[3].is_number_integer();
    if (!whole) return {};
    segments.push_back({.begin = entry[0].get<int64_t>(),
                        .length = entry[1].get<int64_t>(),
                        .trained = entry[2].get<bool>(),
                        .weight_version = entry[3].get<int64_t>()});
  }
  return segments;
}

SampleRecord ReadSample(const SqliteStatement& row) {
  SampleRecord sample;
  sample.step = row.Int(0);
  sample.sample_id = static_cast<uint64_t>(row.Int(1));
  sample.group = row.Int(2);
  sample.index = row.Int(3);
  sample.prompt = row.Text(4);
  sample.response = row.Text(5);
  sample.ground_truth = row.Text(6);
  sample.reward = row.Real(7);
  sample.response_tokens = row.Int(8);
  sample.finish_reason = static_cast<FinishReason>(row.Int(9));
  sample.weight_version = row.Int(10);
  sample.advantage = row.Real(11);
  sample.reward_terms = NumbersFromJson(row.Text(12));
  sample.token_offset = row.Int(13);
  sample.segments = SegmentsFromJson(row.Text(14));
  return sample;
}

}  // namespace

namespace {

absl::StatusOr<std::unique_ptr<SqliteDatabase>> OpenMigrated(const std::string& path) {
  TANDEM_ASSIGN_OR_RETURN(std::unique_ptr<SqliteDatabase> db, SqliteDatabase::Open(path));
  const absl::Status migrated = MigrateStore(db.get());
  if (!migrated.ok()) return Annotate(migrated, path);
  return db;
}

}  // namespace

void SettleStore(const std::string& path) {
  if (!PathExists(path)) return;
  const auto db = SqliteDatabase::Open(path);
  if (db.ok()) (*db)->Execute("PRAGMA wal_checkpoint(TRUNCATE)").IgnoreError();
}

absl::StatusOr<std::unique_ptr<SqliteRunStore>> SqliteRunStore::Open(const std::string& path) {
  TANDEM_ASSIGN_OR_RETURN(std::unique_ptr<SqliteDatabase> db, OpenMigrated(path));
  return std::unique_ptr<SqliteRunStore>(new SqliteRunStore(std::move(db)));
}

absl::Status SqliteRunStore::ContinueIn(const std::string& path) {
  TANDEM_ASSIGN_OR_RETURN(std::unique_ptr<SqliteDatabase> db, OpenMigrated(path));
  const MutexLock lock(db_mutex_);
  db_ = std::move(db);
  return absl::OkStatus();
}

absl::Status SqliteRunStore::RecordRun(const RunInfo& info) {
  const MutexLock lock(db_mutex_);
  TANDEM_ASSIGN_OR_RETURN(
      SqliteStatement insert,
      db_->Prepare("INSERT OR REPLACE INTO runs VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"));
  return insert
      .Bind(info.run_id, info.started_at, info.run_dir, info.build, info.numerics_class,
            info.config_yaml, info.total_steps, info.first_step, info.kernel_sets, info.memory_plan)
      .Run();
}

absl::StatusOr<RunInfo> SqliteRunStore::NewestRun() {
  const MutexLock lock(db_mutex_);
  TANDEM_ASSIGN_OR_RETURN(
      SqliteStatement select,
      db_->Prepare("SELECT run_id, started_at, run_dir, memory_plan FROM runs ORDER BY rowid DESC "
                   "LIMIT 1"));
  TANDEM_ASSIGN_OR_RETURN(const bool row, select.Step());
  if (!row) return absl::NotFoundError("no run has been recorded here");
  RunInfo info;
  info.run_id = select.Text(0);
  info.started_at = select.Text(1);
  info.run_dir = select.Text(2);
  info.memory_plan = select.Text(3);
  return info;
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

absl::Status SqliteRunStore::RecordStep(const StepRecord& step) {
  const MutexLock lock(db_mutex_);
  TANDEM_ASSIGN_OR_RETURN(SqliteTransaction transaction, SqliteTransaction::Begin(db_.get()));
  TANDEM_RETURN_IF_ERROR(DeleteStep("phases", step.step));
  TANDEM_ASSIGN_OR_RETURN(SqliteStatement insert,
                          db_->Prepare("INSERT OR REPLACE INTO steps VALUES (?, ?, ?, ?)"));
  TANDEM_RETURN_IF_ERROR(
      insert.Bind(step.step, step.version, step.finished_at, NumbersToJson(step.metrics)).Run());
  TANDEM_RETURN_IF_ERROR(InsertPhases(step));
  return transaction.Commit();
}

absl::Status SqliteRunStore::RecordSamples(int64_t step, const std::vector<SampleRecord>& samples) {
  const MutexLock lock(db_mutex_);
  TANDEM_ASSIGN_OR_RETURN(SqliteTransaction transaction, SqliteTransaction::Begin(db_.get()));
  TANDEM_RETURN_IF_ERROR(DeleteStep("samples", step));
  TANDEM_ASSIGN_OR_RETURN(
      SqliteStatement insert,
      db_->Prepare("INSERT INTO samples VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"));
  for (const SampleRecord& sample : samples) {
    TANDEM_RETURN_IF_ERROR(
        insert
            .Bind(step, static_cast<int64_t>(sample.sample_id), sample.group, sample.index,
                  sample.prompt, sample.response, sample.ground_truth, sample.reward,
                  sample.response_tokens, static_cast<int64_t>(sample.finish_reason),
                  sample.weight_version, sample.advantage, NumbersToJson(sample.reward_terms),
                  sample.token_offset, SegmentsToJson(sample.segments))
            .Run());
  }
  return transaction.Commit();
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

absl::Status SqliteRunStore::TruncateAfter(int64_t step) {
  const MutexLock lock(db_mutex_);
  TANDEM_ASSIGN_OR_RETURN(SqliteTransaction transaction, SqliteTransaction::Begin(db_.get()));
  for (const char* table : {"steps", "phases", "samples", "evaluations"}) {
    TANDEM_RETURN_IF_ERROR(
        db_->Execute(fmt::format("DELETE FROM {} WHERE step > {}", table, step)));
  }
  return transaction.Commit();
}

absl::StatusOr<std::vector<PhaseTime>> SqliteRunStore::PhasesOf(int64_t step) {
  TANDEM_ASSIGN_OR_RETURN(
      SqliteStatement select,
      db_->Prepare("SELECT phase, seconds, peak_bytes, workers FROM phases WHERE step = ? ORDER BY "
                   "ordinal"));
  select.Bind(step);
  std::vector<PhaseTime> phases;
  while (true) {
    TANDEM_ASSIGN_OR_RETURN(const bool row, select.Step());
    if (!row) return phases;
    phases.push_back(
        {select.Text(0), select.Real(1), select.Int(2), WorkersFromJson(select.Text(3))});
  }
}

absl::StatusOr<std::vector<StepRecord>> SqliteRunStore::ListSteps(int64_t first_step,
                                                                  int64_t last_step,
                                                                  int64_t limit) {
  const MutexLock lock(db_mutex_);
  TANDEM_ASSIGN_OR_RETURN(
      SqliteStatement select,
      db_->Prepare("SELECT step, version, finished_at, metrics FROM steps WHERE step >= ? AND "
                   "(? = 0 OR step <= ?) ORDER BY step DESC LIMIT ?"));
  const int64_t most = limit > 0 ? limit : -1;  // -1: all
  select.Bind(first_step, last_step, last_step, most);
  std::vector<StepRecord> steps;
  while (true) {
    TANDEM_ASSIGN_OR_RETURN(const bool row, select.Step());
    if (!row) break;
    StepRecord step;
    step.step = select.Int(0);
    step.version = select.Int(1);
    step.finished_at = select.Text(2);
    step.metrics = NumbersFromJson(select.Text(3));
    TANDEM_ASSIGN_OR_RETURN(step.phases, PhasesOf(step.step));
    steps.push_back(std::move(step));
  }
  std::reverse(steps.begin(), steps.end());
  return steps;
}

absl::StatusOr<SampleRecordPage> SqliteRunStore::ListSamples(int64_t step,
                                                             int64_t limit,
                                                             int64_t offset) {
  const MutexLock lock(db_mutex_);
  SampleRecordPage page;
  TANDEM_ASSIGN_OR_RETURN(SqliteStatement count,
                          db_->Prepare("SELECT COUNT(*) FROM samples WHERE step = ?"));
  TANDEM_RETURN_IF_ERROR(count.Bind(step).Step().status());
  page.total = count.Int(0);
  TANDEM_ASSIGN_OR_RETURN(
      SqliteStatement select,
      db_->Prepare(
          "SELECT step, sample_id, group_index, sample_index, prompt, response, ground_truth, "
          "reward, response_tokens, finish_reason, weight_version, advantage, reward_terms, "
          "token_offset, segments FROM samples WHERE step = ? ORDER BY sample_id LIMIT ? OFFSET "
          "?"));
  select.Bind(step, limit, offset);
  while (true) {
    TANDEM_ASSIGN_OR_RETURN(const bool row, select.Step());
    if (!row) return page;
    page.samples.push_back(ReadSample(select));
  }
}

absl::StatusOr<std::vector<EvaluationRecord>> SqliteRunStore::ListEvaluations() {
  const MutexLock lock(db_mutex_);
  TANDEM_ASSIGN_OR_RETURN(SqliteStatement select,
                          db_->Prepare("SELECT step, version, prompts, samples, seconds, metrics "
                                       "FROM evaluations ORDER BY step"));
  std::vector<EvaluationRecord> evaluations;
  while (true) {
    TANDEM_ASSIGN_OR_RETURN(const bool row, select.Step());
    if (!row) return evaluations;
    EvaluationRecord evaluation;
    evaluation.step = select.Int(0);
    evaluation.version = select.Int(1);
    evaluation.prompts = select.Int(2);
    evaluation.samples = select.Int(3);
    evaluation.seconds = select.Real(4);
    evaluation.metrics = NumbersFromJson(select.Text(5));
    evaluations.push_back(std::move(evaluation));
  }
}

}  // namespace tandem
