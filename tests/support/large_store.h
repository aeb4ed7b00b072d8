// The run.db of a long run, made in one transaction.
#pragma once

#include <cstdint>
#include <string>

#include <absl/status/status.h>
#include <fmt/format.h>

#include "common/base/status.h"
#include "controller/store/sqlite/database.h"

namespace tandem::testing {

struct LargeStore {
  int64_t steps = 1;
  int64_t samples = 512;       // of each step that has any
  int64_t prompt_bytes = 100;  // even
  bool all_sampled = true;     // false: only the first and the last step have samples
  std::string workers = std::string(1000, ' ') + "[]";  // JSON of a phase's ledgers
};

// "WITH n(i) AS (first to last) "
inline std::string NumbersFrom(int64_t first, int64_t last) {
  return fmt::format(
      "WITH RECURSIVE n(i) AS (SELECT {} UNION ALL SELECT i + 1 FROM n WHERE i < {}) ", first,
      last);
}

// Fills a file that SqliteRunStore has made: steps with the metrics, phases and ledgers of a run
// with one pair, and samples.
inline absl::Status FillStore(const std::string& path, const LargeStore& size) {
  std::string metrics = "{\"critic/rewards/mean\": 0.5";
  for (int i = 0; i < 60; ++i) metrics += fmt::format(", \"some/metric/of/a/step_{}\": 0.125", i);
  const std::string steps = NumbersFrom(1, size.steps);
  TANDEM_ASSIGN_OR_RETURN(const auto db, SqliteDatabase::Open(path));
  TANDEM_ASSIGN_OR_RETURN(SqliteTransaction transaction, SqliteTransaction::Begin(db.get()));
  TANDEM_RETURN_IF_ERROR(
      db->Execute(steps +
                  "INSERT INTO steps (step, version, finished_at, metrics) SELECT i, i, "
                  "1767323045000000 + i, '" +
                  metrics + "}' FROM n"));
  // As SqliteRunStore writes them beside the steps.
  TANDEM_RETURN_IF_ERROR(db->Execute(
      "INSERT INTO metric_names (name) SELECT j.key FROM steps, json_each(steps.metrics) AS j "
      "WHERE steps.step = 1"));
  TANDEM_RETURN_IF_ERROR(db->Execute(
      "INSERT INTO metric_values SELECT n.id, s.step, 0.5 FROM metric_names AS n, steps AS s"));
  for (int phase = 0; phase < 6; ++phase) {
    TANDEM_RETURN_IF_ERROR(db->Execute(
        fmt::format("{}INSERT INTO phases SELECT i, {}, 'phase {}', 1.5, 1000, '{}' FROM n", steps,
                    phase, phase, size.workers)));
  }
  const std::string sampled =
      size.all_sampled ? "n" : fmt::format("(SELECT 1 AS i UNION SELECT {} AS i)", size.steps);
  TANDEM_RETURN_IF_ERROR(db->Execute(fmt::format(
      "{}, s(id) AS (SELECT 1 UNION ALL SELECT id + 1 FROM s WHERE id < {}) INSERT INTO samples "
      "(step, sample_id, group_index, sample_index, prompt, response, ground_truth, reward, "
      "response_tokens, finish_reason, weight_version, advantage, reward_terms, token_offset, "
      "segments) SELECT i, id, 0, id, hex(zeroblob({})), 'response of step ' || i, 'truth', 0.5, "
      "9, 1, 1, 0, "
      "'{{}}', 0, '[]' FROM {} CROSS JOIN s",  // step by step, as a run writes them
      size.all_sampled ? NumbersFrom(1, size.steps) : NumbersFrom(1, 1), size.samples,
      size.prompt_bytes / 2, sampled)));
  return transaction.Commit();
}

}  // namespace tandem::testing
