// Reads the records of a run from run.db, of this or an older schema.
#pragma once

#include <cstddef>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <absl/status/statusor.h>

#include "controller/store/run_store.h"
#include "controller/store/sqlite/database.h"

namespace tandem {

// Columns and tables that an older build did not write read as absent: empty, 0, no rows. Not
// thread-safe. Errors as SqliteDatabase; FailedPrecondition: a newer build wrote the file.
class RunQueries {
 public:
  // `db` must outlive the result.
  static absl::StatusOr<RunQueries> Look(SqliteDatabase* db);

  // What was recorded of the run, or the resume, that began last. NotFound: there is none.
  absl::StatusOr<RunInfo> NewestRun() const;
  // As the methods of RunRecords.
  absl::StatusOr<std::vector<StepRecord>> ListSteps(const StepQuery& query) const;
  absl::StatusOr<SampleRecordPage> ListSamples(const SampleQuery& query) const;
  absl::StatusOr<std::vector<EvaluationRecord>> ListEvaluations(const EvaluationQuery& query) const;
  absl::StatusOr<std::vector<EventRecord>> ListEvents(int64_t limit) const;
  // Of all valid steps, sorted.
  absl::StatusOr<std::vector<std::string>> ListMetricNames() const;
  // By name: (step, value) of the valid steps that have the metric, in ascending order; NaN: not a
  // number. last_step 0: to the newest.
  absl::StatusOr<std::map<std::string, std::vector<std::pair<int64_t, double>>>> ReadMetrics(
      const std::vector<std::string>& names, int64_t first_step, int64_t last_step) const;

 private:
  explicit RunQueries(SqliteDatabase* db) : db_(db) {}
  bool Has(const std::string& table) const { return columns_.contains(table); }
  // "SELECT a, NULL, c FROM table", where the table lacks column b.
  std::string Select(const std::string& table, const std::vector<std::string>& columns) const;
  // As Select, of a RecordTable's columns and undone_by, which is 0 for valid rows.
  std::string SelectRecords(const std::string& table, bool undone) const;
  std::string SelectRecords(const std::string& table,
                            std::vector<std::string> columns,
                            bool undone) const;
  // Reads the named metrics of steps that are in ascending order, each as one range.
  absl::Status AddMetrics(const std::vector<std::string>& names,
                          std::vector<StepRecord>& steps) const;
  // Reads what StepQuery::details asks for, and adds the bytes that it takes to `bytes`.
  absl::Status AddDetails(StepRecord& step, size_t* bytes) const;
  absl::Status AddHistograms(StepRecord& step, size_t* bytes) const;
  absl::Status AddUpdates(StepRecord& step, size_t* bytes) const;
  absl::Status AddSyncs(StepRecord& step, size_t* bytes) const;
  absl::Status AddLoad(StepRecord& step, size_t* bytes) const;
  absl::StatusOr<std::vector<std::string>> NamesInSteps() const;
  // The column, or expression, of a table of samples; "NULL" where it does not have it.
  std::string ColumnOf(const std::string& table, SampleField field) const;
  // The rows that a query asks for: " WHERE ...". Its conditions are parameters, which
  // BindConditions sets.
  std::string WhereOf(const std::string& table, const SampleQuery& query) const;
  static void BindConditions(const SampleQuery& query, SqliteStatement& statement);
  std::string OrderOf(const std::string& table, const SampleQuery& query) const;
  // Reads prompt and ground truth of a sample by `select`, of the table of prompts.
  absl::Status AddPrompt(SqliteStatement& select, SampleRecord& sample) const;
  // Rows of a RecordTable of one step, in the order of `order`.
  absl::StatusOr<SqliteStatement> SelectOfStep(const std::string& table,
                                               const std::vector<std::string>& columns,
                                               int64_t step,
                                               int64_t undone_by,
                                               const std::string& order) const;
  absl::StatusOr<std::vector<GroupRecord>> GroupsOf(const SampleQuery& query) const;
  // Adds the bytes of the ledgers to `bytes`.
  absl::StatusOr<std::vector<PhaseTime>> PhasesOf(const StepRecord& step,
                                                  const StepQuery& query,
                                                  size_t* bytes) const;

  SqliteDatabase* db_;
  std::map<std::string, std::set<std::string>> columns_;  // by table
};

}  // namespace tandem
