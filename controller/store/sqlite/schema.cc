#include "controller/store/sqlite/schema.h"

#include <algorithm>

#include <fmt/format.h>

#include "common/base/status.h"

namespace tandem {
namespace {

// The second half of version 5. metric_values has the numbers of steps.metrics by name, so that a
// series is one range; of steps that are undone only the text stays. Rows that an older build wrote
// say that their run's end was not recorded, and get an attempt by their order.
constexpr char kEndsEventsSeries[] = R"sql(
    ALTER TABLE runs ADD COLUMN ended_at TEXT NOT NULL DEFAULT '';
    ALTER TABLE runs ADD COLUMN outcome TEXT NOT NULL DEFAULT '';
    ALTER TABLE runs ADD COLUMN error TEXT NOT NULL DEFAULT '';
    ALTER TABLE runs ADD COLUMN attempt INTEGER NOT NULL DEFAULT 0;
    UPDATE runs SET outcome = 'unknown',
      attempt = (SELECT COUNT(*) FROM runs AS earlier WHERE earlier.rowid <= runs.rowid);
    ALTER TABLE steps RENAME COLUMN finished_at TO finished_text;
    ALTER TABLE steps ADD COLUMN finished_at INTEGER;
    UPDATE steps SET finished_at = CAST(strftime('%s', finished_text) AS INTEGER) * 1000000;
    ALTER TABLE steps DROP COLUMN finished_text;
    ALTER TABLE undone_steps RENAME COLUMN finished_at TO finished_text;
    ALTER TABLE undone_steps ADD COLUMN finished_at INTEGER;
    UPDATE undone_steps SET finished_at = CAST(strftime('%s', finished_text) AS INTEGER) * 1000000;
    ALTER TABLE undone_steps DROP COLUMN finished_text;
    CREATE TABLE metric_names (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE);
    CREATE TABLE metric_values (
      name_id INTEGER, step INTEGER, value REAL, PRIMARY KEY (name_id, step)) WITHOUT ROWID;
    INSERT INTO metric_names (name)
      SELECT DISTINCT m.key FROM steps, json_each(steps.metrics) AS m WHERE json_valid(steps.metrics);
    INSERT INTO metric_values
      SELECT n.id, s.step, m.value FROM steps AS s, json_each(s.metrics) AS m
        JOIN metric_names AS n ON n.name = m.key WHERE json_valid(s.metrics);
    CREATE TABLE groups (
      step INTEGER, group_index INTEGER, samples INTEGER, reward_mean REAL, reward_std REAL,
      kind TEXT, PRIMARY KEY (step, group_index)) WITHOUT ROWID;
    CREATE TABLE undone_groups (
      undone_by INTEGER, step INTEGER, group_index INTEGER, samples INTEGER, reward_mean REAL,
      reward_std REAL, kind TEXT, PRIMARY KEY (step, undone_by, group_index)) WITHOUT ROWID;
    CREATE TABLE events (
      seq INTEGER PRIMARY KEY AUTOINCREMENT, time INTEGER, step INTEGER, severity TEXT, kind TEXT,
      worker TEXT, text TEXT);
  )sql";

// Version 6. Rows of older steps stay as they are: what they lack cannot be worked out again, and
// their samples keep the prompt in the row itself.
constexpr char kDistributions[] = R"sql(
    CREATE TABLE prompts (id INTEGER PRIMARY KEY, digest TEXT NOT NULL UNIQUE, text TEXT, truth TEXT);
    ALTER TABLE samples ADD COLUMN prompt_id INTEGER;
    ALTER TABLE samples ADD COLUMN prompt_tokens INTEGER;
    ALTER TABLE samples ADD COLUMN min_log_prob REAL;
    ALTER TABLE samples ADD COLUMN repetition REAL;
    ALTER TABLE samples ADD COLUMN arrived_us INTEGER;
    ALTER TABLE samples ADD COLUMN evicted INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE undone_samples ADD COLUMN prompt_id INTEGER;
    ALTER TABLE undone_samples ADD COLUMN prompt_tokens INTEGER;
    ALTER TABLE undone_samples ADD COLUMN min_log_prob REAL;
    ALTER TABLE undone_samples ADD COLUMN repetition REAL;
    ALTER TABLE undone_samples ADD COLUMN arrived_us INTEGER;
    ALTER TABLE undone_samples ADD COLUMN evicted INTEGER NOT NULL DEFAULT 0;
    CREATE INDEX samples_by_reward ON samples (step, reward);
    CREATE INDEX samples_by_prompt ON samples (prompt_id, step) WHERE prompt_id IS NOT NULL;
    CREATE INDEX undone_samples_by_prompt ON undone_samples (prompt_id, step)
      WHERE prompt_id IS NOT NULL;
    CREATE TABLE eval_samples (
      step INTEGER, group_index INTEGER, sample_index INTEGER, sample_id INTEGER,
      prompt_id INTEGER, prompt_tokens INTEGER, response TEXT, reward REAL,
      response_tokens INTEGER, finish_reason INTEGER, weight_version INTEGER, reward_terms TEXT,
      min_log_prob REAL, repetition REAL, arrived_us INTEGER,
      PRIMARY KEY (step, group_index, sample_index));
    CREATE TABLE undone_eval_samples (
      undone_by INTEGER, step INTEGER, group_index INTEGER, sample_index INTEGER,
      sample_id INTEGER, prompt_id INTEGER, prompt_tokens INTEGER, response TEXT, reward REAL,
      response_tokens INTEGER, finish_reason INTEGER, weight_version INTEGER, reward_terms TEXT,
      min_log_prob REAL, repetition REAL, arrived_us INTEGER,
      PRIMARY KEY (step, undone_by, group_index, sample_index));
    CREATE INDEX eval_samples_by_prompt ON eval_samples (prompt_id, step);
    CREATE INDEX undone_eval_samples_by_prompt ON undone_eval_samples (prompt_id, step);
    CREATE TABLE updates (
      step INTEGER, ordinal INTEGER, version INTEGER, samples INTEGER, tokens INTEGER, metrics TEXT,
      PRIMARY KEY (step, ordinal)) WITHOUT ROWID;
    CREATE TABLE undone_updates (
      undone_by INTEGER, step INTEGER, ordinal INTEGER, version INTEGER, samples INTEGER,
      tokens INTEGER, metrics TEXT, PRIMARY KEY (step, undone_by, ordinal)) WITHOUT ROWID;
    CREATE TABLE syncs (
      step INTEGER, ordinal INTEGER, time INTEGER, version INTEGER, rank INTEGER, bytes INTEGER,
      seconds REAL, digest TEXT, checked INTEGER, PRIMARY KEY (step, ordinal)) WITHOUT ROWID;
    CREATE TABLE undone_syncs (
      undone_by INTEGER, step INTEGER, ordinal INTEGER, time INTEGER, version INTEGER,
      rank INTEGER, bytes INTEGER, seconds REAL, digest TEXT, checked INTEGER,
      PRIMARY KEY (step, undone_by, ordinal)) WITHOUT ROWID;
    CREATE TABLE load (
      step INTEGER, ordinal INTEGER, time INTEGER, rank INTEGER, queued INTEGER, running INTEGER,
      waiting INTEGER, kv_blocks INTEGER, kv_blocks_used INTEGER, preemptions INTEGER,
      generated_tokens INTEGER, prefill_tokens INTEGER, prefix_hit_tokens INTEGER,
      PRIMARY KEY (step, ordinal)) WITHOUT ROWID;
    CREATE TABLE undone_load (
      undone_by INTEGER, step INTEGER, ordinal INTEGER, time INTEGER, rank INTEGER,
      queued INTEGER, running INTEGER, waiting INTEGER, kv_blocks INTEGER,
      kv_blocks_used INTEGER, preemptions INTEGER, generated_tokens INTEGER,
      prefill_tokens INTEGER, prefix_hit_tokens INTEGER, PRIMARY KEY (step, undone_by, ordinal))
      WITHOUT ROWID;
    CREATE TABLE histograms (
      step INTEGER, name TEXT, low REAL, high REAL, counts TEXT, PRIMARY KEY (step, name))
      WITHOUT ROWID;
    CREATE TABLE undone_histograms (
      undone_by INTEGER, step INTEGER, name TEXT, low REAL, high REAL, counts TEXT,
      PRIMARY KEY (step, undone_by, name)) WITHOUT ROWID;
  )sql";

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
  )sql" + std::string(kEndsEventsSeries),
                                                      kDistributions};
  return migrations;
}

absl::StatusOr<bool> HasTable(SqliteDatabase* db, const std::string& name) {
  TANDEM_ASSIGN_OR_RETURN(
      SqliteStatement select,
      db->Prepare("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?"));
  return select.Bind(name).Step();
}

}  // namespace

const std::vector<RecordTable>& RecordTables() {
  static const std::vector<RecordTable> tables = {
      {"steps", {"step", "version", "finished_at", "metrics"}},
      {"phases", {"step", "ordinal", "phase", "seconds", "peak_bytes", "workers"}},
      {"samples",
       {"step",           "sample_id",     "group_index",  "sample_index",    "prompt",
        "response",       "ground_truth",  "reward",       "response_tokens", "finish_reason",
        "weight_version", "advantage",     "reward_terms", "token_offset",    "segments",
        "prompt_id",      "prompt_tokens", "min_log_prob", "repetition",      "arrived_us",
        "evicted"}},
      {"evaluations", {"step", "version", "prompts", "samples", "seconds", "metrics"}},
      {"groups", {"step", "group_index", "samples", "reward_mean", "reward_std", "kind"}},
      {"histograms", {"step", "name", "low", "high", "counts"}},
      {"updates", {"step", "ordinal", "version", "samples", "tokens", "metrics"}},
      {"syncs",
       {"step", "ordinal", "time", "version", "rank", "bytes", "seconds", "digest", "checked"}},
      {"load",
       {"step", "ordinal", "time", "rank", "queued", "running", "waiting", "kv_blocks",
        "kv_blocks_used", "preemptions", "generated_tokens", "prefill_tokens",
        "prefix_hit_tokens"}},
      {"eval_samples",
       {"step", "group_index", "sample_index", "sample_id", "prompt_id", "prompt_tokens",
        "response", "reward", "response_tokens", "finish_reason", "weight_version", "reward_terms",
        "min_log_prob", "repetition", "arrived_us"}}};
  return tables;
}

const RecordTable& TableNamed(const std::string& name) {
  return *std::find_if(RecordTables().begin(), RecordTables().end(),
                       [&](const RecordTable& table) { return table.name == name; });
}

const std::vector<std::string>& TablesOfTexts() {
  static const std::vector<std::string> tables = {"samples", "undone_samples", "eval_samples",
                                                  "undone_eval_samples"};
  return tables;
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

namespace {

// A build between two releases wrote version 5 without its second half.
absl::Status CompleteVersion5(SqliteDatabase* db) {
  TANDEM_ASSIGN_OR_RETURN(const bool complete, HasTable(db, "events"));
  if (complete) return absl::OkStatus();
  TANDEM_ASSIGN_OR_RETURN(SqliteTransaction transaction, SqliteTransaction::Begin(db));
  TANDEM_RETURN_IF_ERROR(db->Execute(kEndsEventsSeries));
  return transaction.Commit();
}

}  // namespace

absl::Status MigrateStore(SqliteDatabase* db) {
  TANDEM_ASSIGN_OR_RETURN(int64_t version, ReadSchemaVersion(db));
  for (; version < StoreSchemaVersion(); ++version) {
    if (version == 5) TANDEM_RETURN_IF_ERROR(CompleteVersion5(db));
    TANDEM_ASSIGN_OR_RETURN(SqliteTransaction transaction, SqliteTransaction::Begin(db));
    TANDEM_RETURN_IF_ERROR(db->Execute(Migrations()[static_cast<size_t>(version)]));
    TANDEM_RETURN_IF_ERROR(db->Execute(fmt::format("PRAGMA user_version = {}", version + 1)));
    TANDEM_RETURN_IF_ERROR(transaction.Commit());
  }
  return absl::OkStatus();
}

}  // namespace tandem
