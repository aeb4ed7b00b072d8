#include "controller/store/migrations.h"

#include <string>
#include <vector>

#include "common/base/status_macros.h"

namespace tandem {
namespace {

// Entry i brings version i to version i + 1. Entries are never edited once released.
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

}  // namespace tandem
