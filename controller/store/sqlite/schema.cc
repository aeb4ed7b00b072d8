#include "controller/store/sqlite/schema.h"

#include <algorithm>

#include <fmt/format.h>

#include "common/base/status.h"

namespace tandem {
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
  )sql",
                                                      R"sql(
    CREATE TABLE undone_steps (
      undone_by INTEGER, step INTEGER, version INTEGER, finished_at TEXT, metrics TEXT,
      PRIMARY KEY (step, undone_by));
    CREATE TABLE undone_phases (
      undone_by INTEGER, step INTEGER, ordinal INTEGER, phase TEXT, seconds REAL,
      peak_bytes INTEGER, workers TEXT, PRIMARY KEY (step, undone_by, ordinal));
    CREATE TABLE undone_samples (
      undone_by INTEGER, step INTEGER, sample_id INTEGER, group_index INTEGER,
      sample_index INTEGER, prompt TEXT, response TEXT, ground_truth TEXT, reward REAL,
      response_tokens INTEGER, finish_reason INTEGER, weight_version INTEGER, advantage REAL,
      reward_terms TEXT, token_offset INTEGER, segments TEXT,
      PRIMARY KEY (step, undone_by, sample_id));
    CREATE TABLE undone_evaluations (
      undone_by INTEGER, step INTEGER, version INTEGER, prompts INTEGER, samples INTEGER,
      seconds REAL, metrics TEXT, PRIMARY KEY (step, undone_by));
    CREATE TABLE marks (name TEXT PRIMARY KEY, value INTEGER);
  )sql"};
  return migrations;
}

}  // namespace

const std::vector<RecordTable>& RecordTables() {
  static const std::vector<RecordTable> tables = {
      {"steps", {"step", "version", "finished_at", "metrics"}},
      {"phases", {"step", "ordinal", "phase", "seconds", "peak_bytes", "workers"}},
      {"samples",
       {"step", "sample_id", "group_index", "sample_index", "prompt", "response", "ground_truth",
        "reward", "response_tokens", "finish_reason", "weight_version", "advantage", "reward_terms",
        "token_offset", "segments"}},
      {"evaluations", {"step", "version", "prompts", "samples", "seconds", "metrics"}}};
  return tables;
}

const RecordTable& TableNamed(const std::string& name) {
  return *std::find_if(RecordTables().begin(), RecordTables().end(),
                       [&](const RecordTable& table) { return table.name == name; });
}

int64_t StoreSchemaVersion() { return static_cast<int64_t>(Migrations().size()); }

absl::StatusOr<int64_t> ReadSchemaVersion(SqliteDatabase* db) {
  TANDEM_ASSIGN_OR_RETURN(SqliteStatement statement, db->Prepare("PRAGMA user_version"));
  TANDEM_ASSIGN_OR_RETURN(const bool row, statement.Step());
  const int64_t version = row ? statement.Int(0) : 0;
  if (version <= StoreSchemaVersion()) return version;
  return FailedPrecondition(
      "the run's database has schema version {}, newer than this build's {}: use the build that "
      "wrote it, or another run directory",
      version, StoreSchemaVersion());
}

absl::Status MigrateStore(SqliteDatabase* db) {
  TANDEM_ASSIGN_OR_RETURN(int64_t version, ReadSchemaVersion(db));
  for (; version < StoreSchemaVersion(); ++version) {
    TANDEM_ASSIGN_OR_RETURN(SqliteTransaction transaction, SqliteTransaction::Begin(db));
    TANDEM_RETURN_IF_ERROR(db->Execute(Migrations()[static_cast<size_t>(version)]));
    TANDEM_RETURN_IF_ERROR(db->Execute(fmt::format("PRAGMA user_version = {}", version + 1)));
    TANDEM_RETURN_IF_ERROR(transaction.Commit());
  }
  return absl::OkStatus();
}

}  // namespace tandem
