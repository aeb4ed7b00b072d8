#include "controller/store/sqlite/run_queries.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <optional>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "common/base/status.h"
#include "controller/store/sqlite/record_json.h"
#include "controller/store/sqlite/schema.h"
#include "controller/store/time_stamp.h"

namespace tandem {
namespace {

bool IsConstant(const std::string& column) { return column == "0" || column == "NULL"; }

std::string UndoneName(const std::string& table) { return "undone_" + table; }

// The bytes that were read; bounds the memory of a page.
class PageBudget {
 public:
  PageBudget(int64_t records, int64_t bytes) : records_(records), bytes_(bytes) {}

  void Spend(size_t bytes) {
    ++spent_records_;
    spent_bytes_ += static_cast<int64_t>(bytes);
  }
  bool Spent() const {
    return (records_ > 0 && spent_records_ >= records_) || (bytes_ > 0 && spent_bytes_ >= bytes_);
  }

 private:
  const int64_t records_, bytes_;  // 0: no bound
  int64_t spent_records_ = 0, spent_bytes_ = 0;
};

SampleRecord ReadSample(const SqliteStatement& row) {
  SampleRecord sample;
  sample.step = row.Int(0);
  sample.sample_id = static_cast<uint64_t>(row.Int(1));
  sample.group = row.Int(2);
  sample.index = row.Int(3);
  sample.texts_kept = !row.IsNull(5);
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
  sample.prompt_id = row.Int(15);
  sample.prompt_tokens = row.Int(16);
  sample.min_log_prob = row.MaybeReal(17);
  sample.repetition = row.MaybeReal(18);
  sample.arrived_us = row.Int(19);
  sample.evicted = row.Int(20) != 0;
  sample.undone_by = row.Int(21);
  return sample;
}

// Older schemas have the text itself.
std::string FinishedAt(const SqliteStatement& row, int column) {
  if (!row.IsInt(column)) return row.Text(column);
  return StampText(row.Int(column));
}

std::map<std::string, double> Only(const std::vector<std::string>& names,
                                   std::map<std::string, double> metrics) {
  if (names.empty()) return metrics;
  std::erase_if(metrics, [&names](const auto& metric) {
    return std::find(names.begin(), names.end(), metric.first) == names.end();
  });
  return metrics;
}

size_t TextBytes(const SampleRecord& sample) {
  return sample.prompt.size() + sample.response.size() + sample.ground_truth.size();
}

}  // namespace

absl::StatusOr<RunQueries> RunQueries::Look(SqliteDatabase* db) {
  TANDEM_RETURN_IF_ERROR(ReadSchemaVersion(db).status());
  RunQueries queries(db);
  TANDEM_ASSIGN_OR_RETURN(
      SqliteStatement select,
      db->Prepare("SELECT m.name, c.name FROM sqlite_master AS m, pragma_table_info(m.name) AS c "
                  "WHERE m.type = 'table'"));
  while (true) {
    TANDEM_ASSIGN_OR_RETURN(const bool row, select.Step());
    if (!row) return queries;
    queries.columns_[select.Text(0)].insert(select.Text(1));
  }
}

std::string RunQueries::Select(const std::string& table,
                               const std::vector<std::string>& columns) const {
  const std::set<std::string>& there = columns_.at(table);
  std::vector<std::string> list;
  for (const std::string& column : columns) {
    list.push_back(there.contains(column) || IsConstant(column) ? column : "NULL");
  }
  return fmt::format("SELECT {} FROM {}", fmt::join(list, ", "), table);
}

std::string RunQueries::SelectRecords(const std::string& table, bool undone) const {
  return SelectRecords(table, TableNamed(table).columns, undone);
}

std::string RunQueries::SelectRecords(const std::string& table,
                                      std::vector<std::string> columns,
                                      bool undone) const {
  columns.emplace_back(undone ? "undone_by" : "0");
  return Select(undone ? UndoneName(table) : table, columns);
}

absl::StatusOr<RunInfo> RunQueries::NewestRun() const {
  const absl::Status none = MakeStatus(absl::StatusCode::kNotFound, "no run has been recorded");
  if (!Has("runs")) return none;
  TANDEM_ASSIGN_OR_RETURN(
      SqliteStatement select,
      db_->Prepare(Select("runs", {"run_id", "started_at", "run_dir", "build", "numerics_class",
                                   "config_yaml", "total_steps", "first_step", "kernel_sets",
                                   "memory_plan", "ended_at", "outcome", "error", "attempt"}) +
                   " ORDER BY rowid DESC LIMIT 1"));
  TANDEM_ASSIGN_OR_RETURN(const bool row, select.Step());
  if (!row) return none;
  return RunInfo{
      .run_id = select.Text(0),
      .run_dir = select.Text(2),
      .started_at = select.Text(1),
      .build = select.Text(3),
      .numerics_class = select.Text(4),
      .kernel_sets = select.Text(8),
      .config_yaml = select.Text(5),
      .memory_plan = select.Text(9),
      .total_steps = select.Int(6),
      .first_step = select.Int(7),
      .ended_at = select.Text(10),
      .outcome = select.IsNull(11) ? RunOutcome::kUnknown : RunOutcomeNamed(select.Text(11)),
      .error = select.Text(12),
      .attempt = select.Int(13)};
}

absl::StatusOr<SqliteStatement> RunQueries::SelectOfStep(const std::string& table,
                                                         const std::vector<std::string>& columns,
                                                         int64_t step,
                                                         int64_t undone_by,
                                                         const std::string& order) const {
  const bool undone = undone_by != 0;
  TANDEM_ASSIGN_OR_RETURN(
      SqliteStatement select,
      db_->Prepare(Select(undone ? UndoneName(table) : table, columns) + " WHERE step = ?" +
                   (undone ? " AND undone_by = ?" : "") + " ORDER BY " + order));
  undone ? select.Bind(step, undone_by) : select.Bind(step);
  return select;
}

absl::Status RunQueries::AddHistograms(StepRecord& step, size_t* bytes) const {
  TANDEM_ASSIGN_OR_RETURN(SqliteStatement select,
                          SelectOfStep("histograms", {"name", "low", "high", "counts"}, step.step,
                                       step.undone_by, "name"));
  while (true) {
    TANDEM_ASSIGN_OR_RETURN(const bool row, select.Step());
    if (!row) return absl::OkStatus();
    *bytes += sizeof(Histogram);
    step.histograms[select.Text(0)] = {
        .low = select.Real(1), .high = select.Real(2), .counts = CountsFromJson(select.Text(3))};
  }
}

absl::Status RunQueries::AddUpdates(StepRecord& step, size_t* bytes) const {
  TANDEM_ASSIGN_OR_RETURN(SqliteStatement select,
                          SelectOfStep("updates", {"version", "samples", "tokens", "metrics"},
                                       step.step, step.undone_by, "ordinal"));
  while (true) {
    TANDEM_ASSIGN_OR_RETURN(const bool row, select.Step());
    if (!row) return absl::OkStatus();
    const std::string metrics = select.Text(3);
    *bytes += sizeof(UpdateRecord) + metrics.size();
    step.updates.push_back({.version = select.Int(0),
                            .samples = select.Int(1),
                            .tokens = select.Int(2),
                            .metrics = NumbersFromJson(metrics)});
  }
}

absl::Status RunQueries::AddSyncs(StepRecord& step, size_t* bytes) const {
  TANDEM_ASSIGN_OR_RETURN(
      SqliteStatement select,
      SelectOfStep("syncs", {"time", "version", "rank", "bytes", "seconds", "digest", "checked"},
                   step.step, step.undone_by, "ordinal"));
  while (true) {
    TANDEM_ASSIGN_OR_RETURN(const bool row, select.Step());
    if (!row) return absl::OkStatus();
    *bytes += sizeof(SyncRecord);
    step.syncs.push_back({.time_us = select.Int(0),
                          .version = select.Int(1),
                          .rank = static_cast<int>(select.Int(2)),
                          .bytes = select.Int(3),
                          .seconds = select.Real(4),
                          .digest = select.Text(5),
                          .checked = select.Int(6) != 0});
  }
}

absl::Status RunQueries::AddLoad(StepRecord& step, size_t* bytes) const {
  TANDEM_ASSIGN_OR_RETURN(
      SqliteStatement select,
      SelectOfStep("load",
                   {"time", "rank", "queued", "running", "waiting", "kv_blocks", "kv_blocks_used",
                    "preemptions", "generated_tokens", "prefill_tokens", "prefix_hit_tokens"},
                   step.step, step.undone_by, "ordinal"));
  while (true) {
    TANDEM_ASSIGN_OR_RETURN(const bool row, select.Step());
    if (!row) return absl::OkStatus();
    *bytes += sizeof(LoadRecord);
    step.load.push_back({.time_us = select.Int(0),
                         .rank = static_cast<int>(select.Int(1)),
                         .load = {.queued = select.Int(2),
                                  .running = select.Int(3),
                                  .waiting = select.Int(4),
                                  .kv_blocks = select.Int(5),
                                  .kv_blocks_used = select.Int(6),
                                  .preemptions = select.Int(7),
                                  .generated_tokens = select.Int(8),
                                  .prefill_tokens = select.Int(9),
                                  .prefix_hit_tokens = select.Int(10)}});
  }
}

absl::Status RunQueries::AddDetails(StepRecord& step, size_t* bytes) const {
  if (!Has("histograms")) return absl::OkStatus();  // version 6 brought all of them
  TANDEM_RETURN_IF_ERROR(AddHistograms(step, bytes));
  TANDEM_RETURN_IF_ERROR(AddUpdates(step, bytes));
  TANDEM_RETURN_IF_ERROR(AddSyncs(step, bytes));
  return AddLoad(step, bytes);
}

absl::StatusOr<std::vector<PhaseTime>> RunQueries::PhasesOf(const StepRecord& step,
                                                            const StepQuery& query,
                                                            size_t* bytes) const {
  std::vector<PhaseTime> phases;
  if (!Has(query.undone ? UndoneName("phases") : "phases") || !query.phases) return phases;
  std::vector<std::string> columns = {"phase", "seconds", "peak_bytes"};
  if (query.workers) columns.emplace_back("workers");
  TANDEM_ASSIGN_OR_RETURN(SqliteStatement select,
                          SelectOfStep("phases", columns, step.step, step.undone_by, "ordinal"));
  while (true) {
    TANDEM_ASSIGN_OR_RETURN(const bool row, select.Step());
    if (!row) return phases;
    PhaseTime phase{select.Text(0), select.Real(1), select.Int(2), {}};
    if (query.workers) {
      const std::string workers = select.Text(3);
      *bytes += workers.size();
      phase.workers = WorkersFromJson(workers);
    }
    phases.push_back(std::move(phase));
  }
}

absl::StatusOr<std::vector<StepRecord>> RunQueries::ListSteps(const StepQuery& query) const {
  std::vector<StepRecord> steps;
  if (!Has(query.undone ? UndoneName("steps") : "steps")) return steps;
  const bool by_name = !query.metrics.empty() && !query.undone && Has("metric_values");
  TANDEM_ASSIGN_OR_RETURN(
      SqliteStatement select,
      db_->Prepare(SelectRecords("steps",
                                 {"step", "version", "finished_at", by_name ? "NULL" : "metrics"},
                                 query.undone) +
                   " WHERE step BETWEEN ? AND ? ORDER BY step DESC" +
                   (query.undone ? ", undone_by DESC" : "")));
  // Both bounds are numbers, so that SQLite seeks to the last step: it would go through all later
  // ones where it cannot tell before whether there is a bound.
  select.Bind(query.first_step,
              query.last_step == 0 ? std::numeric_limits<int64_t>::max() : query.last_step);
  PageBudget budget(query.limit, query.max_bytes);
  while (true) {
    TANDEM_ASSIGN_OR_RETURN(const bool row, select.Step());
    if (!row) break;
    // A page ends between two steps: all that was undone of a step is on one page.
    if (!steps.empty() && budget.Spent() && steps.back().step != select.Int(0)) break;
    StepRecord step;
    step.step = select.Int(0);
    step.version = select.Int(1);
    step.finished_at = FinishedAt(select, 2);
    if (!by_name) step.metrics = Only(query.metrics, NumbersFromJson(select.Text(3)));
    step.undone_by = select.Int(4);
    size_t bytes = select.Text(3).size();
    TANDEM_ASSIGN_OR_RETURN(step.phases, PhasesOf(step, query, &bytes));
    if (query.details) TANDEM_RETURN_IF_ERROR(AddDetails(step, &bytes));
    budget.Spend(bytes);
    steps.push_back(std::move(step));
  }
  std::reverse(steps.begin(), steps.end());
  if (by_name) TANDEM_RETURN_IF_ERROR(AddMetrics(query.metrics, steps));
  return steps;
}

absl::Status RunQueries::AddMetrics(const std::vector<std::string>& names,
                                    std::vector<StepRecord>& steps) const {
  if (steps.empty()) return absl::OkStatus();
  TANDEM_ASSIGN_OR_RETURN(
      SqliteStatement select,
      db_->Prepare("SELECT v.step, v.value FROM metric_values AS v WHERE v.name_id = (SELECT id "
                   "FROM metric_names WHERE name = ?) AND v.step BETWEEN ? AND ? ORDER BY v.step"));
  for (const std::string& name : names) {
    select.Reset();
    select.Bind(name, steps.front().step, steps.back().step);
    auto step = steps.begin();
    while (true) {
      TANDEM_ASSIGN_OR_RETURN(const bool row, select.Step());
      if (!row) break;
      while (step != steps.end() && step->step < select.Int(0)) ++step;
      if (step == steps.end()) break;
      if (step->step != select.Int(0)) continue;
      step->metrics[name] =
          select.IsNull(1) ? std::numeric_limits<double>::quiet_NaN() : select.Real(1);
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<EventRecord>> RunQueries::ListEvents(int64_t limit) const {
  std::vector<EventRecord> events;
  if (!Has("events")) return events;
  TANDEM_ASSIGN_OR_RETURN(
      SqliteStatement select,
      db_->Prepare("SELECT seq, time, step, severity, kind, worker, text FROM events "
                   "ORDER BY seq DESC LIMIT ?"));
  select.Bind(limit);
  while (true) {
    TANDEM_ASSIGN_OR_RETURN(const bool row, select.Step());
    if (!row) break;
    events.push_back({.seq = select.Int(0),
                      .time_us = select.Int(1),
                      .step = select.Int(2),
                      .severity = select.Text(3),
                      .kind = select.Text(4),
                      .worker = select.Text(5),
                      .text = select.Text(6)});
  }
  std::reverse(events.begin(), events.end());
  return events;
}

absl::StatusOr<std::vector<GroupRecord>> RunQueries::GroupsOf(const SampleQuery& query) const {
  std::vector<GroupRecord> groups;
  if (!Has(query.undone_by != 0 ? UndoneName("groups") : "groups")) return groups;
  TANDEM_ASSIGN_OR_RETURN(
      SqliteStatement select,
      SelectOfStep("groups", {"group_index", "samples", "reward_mean", "reward_std", "kind"},
                   query.step, query.undone_by, "group_index"));
  while (true) {
    TANDEM_ASSIGN_OR_RETURN(const bool row, select.Step());
    if (!row) return groups;
    const std::string kind = select.Text(4);
    const auto* const name = std::find(kGroupKindNames.begin(), kGroupKindNames.end(), kind);
    if (name == kGroupKindNames.end()) {
      return MakeStatus(absl::StatusCode::kDataLoss,
                        "group {} of step {} has the kind \"{}\", which this build does not know: "
                        "read it with the build that wrote it",
                        select.Int(0), query.step, kind);
    }
    groups.push_back({.group = select.Int(0),
                      .samples = select.Int(1),
                      .reward_mean = select.Real(2),
                      .reward_std = select.Real(3),
                      .kind = static_cast<GroupKind>(name - kGroupKindNames.begin())});
  }
}

absl::Status RunQueries::AddPrompt(SqliteStatement& select, SampleRecord& sample) const {
  if (sample.prompt_id == 0 || (!sample.texts_kept && !sample.evicted)) return absl::OkStatus();
  select.Reset();
  TANDEM_ASSIGN_OR_RETURN(const bool row, select.Bind(sample.prompt_id).Step());
  if (!row) {
    return MakeStatus(absl::StatusCode::kDataLoss,
                      "sample {:#x} of step {} has prompt {}, which is not there: the file was "
                      "changed by another program",
                      sample.sample_id, sample.step, sample.prompt_id);
  }
  sample.texts_kept = !select.IsNull(0);
  sample.prompt = select.Text(0);
  sample.ground_truth = select.Text(1);
  return absl::OkStatus();
}

std::string RunQueries::ColumnOf(const std::string& table, SampleField field) const {
  static const std::map<SampleField, std::string> columns = {
      {SampleField::kReward, "reward"},
      {SampleField::kLength, "response_tokens"},
      {SampleField::kPromptLength, "prompt_tokens"},
      {SampleField::kAdvantage, "advantage"},
      {SampleField::kMinLogProb, "min_log_prob"},
      {SampleField::kRepetition, "repetition"},
      {SampleField::kVersion, "weight_version"},
      {SampleField::kGroup, "group_index"},
      {SampleField::kIndex, "sample_index"},
      {SampleField::kEnd, "finish_reason"}};
  const auto column = columns.find(field);
  if (column != columns.end()) {
    return columns_.at(table).contains(column->second) ? column->second : "NULL";
  }
  if (table != "samples" || !Has("groups")) return "NULL";
  std::string kind = "(SELECT CASE kind";
  for (size_t i = 0; i < kGroupKinds; ++i) {
    kind += fmt::format(" WHEN '{}' THEN {}", kGroupKindNames[i], i);
  }
  return kind +
         " END FROM groups AS g WHERE g.step = samples.step AND g.group_index = "
         "samples.group_index)";
}

std::string RunQueries::WhereOf(const std::string& table, const SampleQuery& query) const {
  std::vector<std::string> conditions;
  if (query.step != 0 || query.prompt_id == 0) {
    conditions.push_back(fmt::format("step = {}", query.step));
  }
  if (query.undone_by != 0) conditions.push_back(fmt::format("undone_by = {}", query.undone_by));
  if (query.prompt_id != 0) {
    conditions.push_back(fmt::format("prompt_id = {}", query.prompt_id));
  } else if (!query.evaluation && columns_.at("samples").contains("evicted")) {
    conditions.push_back(fmt::format("evicted = {}", query.evicted ? 1 : 0));
  } else if (query.evicted) {
    conditions.emplace_back("FALSE");  // an older build kept none
  }
  if (query.sample_id) {
    conditions.push_back(fmt::format("sample_id = {}", static_cast<int64_t>(*query.sample_id)));
  }
  int parameter = 1;  // the first is query.contains
  for (const SampleCondition& condition : query.conditions) {
    conditions.push_back(fmt::format("{} {} ?{}", ColumnOf(table, condition.field),
                                     kComparisonSigns[static_cast<size_t>(condition.comparison)],
                                     ++parameter));
  }
  if (!query.contains.empty()) {
    const std::set<std::string>& there = columns_.at(table);
    std::vector<std::string> texts = {"response"};
    if (there.contains("prompt")) texts.emplace_back("prompt");
    if (there.contains("prompt_id")) {
      texts.emplace_back("(SELECT text FROM prompts WHERE id = prompt_id)");
    }
    // A text that is NULL has none.
    for (std::string& text : texts) text = fmt::format("coalesce(instr({}, ?1), 0) > 0", text);
    conditions.push_back(fmt::format("({})", fmt::join(texts, " OR ")));
  }
  return fmt::format(" WHERE {}", fmt::join(conditions, " AND "));
}

void RunQueries::BindConditions(const SampleQuery& query, SqliteStatement& statement) {
  statement.BindAt(1, query.contains);
  int parameter = 1;
  for (const SampleCondition& condition : query.conditions) {
    statement.BindAt(++parameter, condition.number);
  }
}

std::string RunQueries::OrderOf(const std::string& table, const SampleQuery& query) const {
  std::string order = query.evaluation ? "step, group_index, sample_index" : "step, sample_id";
  if (query.order) {
    const std::string column = ColumnOf(table, *query.order);
    order = fmt::format("{0} IS NULL, {0}{1}, {2}", column, query.descending ? " DESC" : "", order);
  }
  return " ORDER BY " + order;
}

absl::StatusOr<SampleRecordPage> RunQueries::ListSamples(const SampleQuery& query) const {
  SampleRecordPage page;
  const bool undone = query.undone_by != 0;
  const std::string name = query.evaluation ? "eval_samples" : "samples";
  const std::string table = undone ? UndoneName(name) : name;
  if (!Has(table) || (query.prompt_id != 0 && !Has("prompts"))) return page;
  const std::string rows = WhereOf(table, query);
  TANDEM_ASSIGN_OR_RETURN(SqliteStatement count,
                          db_->Prepare(fmt::format("SELECT COUNT(*) FROM {}{}", table, rows)));
  BindConditions(query, count);
  TANDEM_RETURN_IF_ERROR(count.Step().status());
  page.total = count.Int(0);
  std::vector<std::string> columns = TableNamed("samples").columns;
  columns.emplace_back(undone ? "undone_by" : "0");
  TANDEM_ASSIGN_OR_RETURN(
      SqliteStatement select,
      db_->Prepare(fmt::format("{}{}{} LIMIT -1 OFFSET {}", Select(table, columns), rows,
                               OrderOf(table, query), query.offset)));
  BindConditions(query, select);
  std::optional<SqliteStatement> prompt;
  if (Has("prompts")) {
    TANDEM_ASSIGN_OR_RETURN(prompt, db_->Prepare("SELECT text, truth FROM prompts WHERE id = ?"));
  }
  PageBudget budget(query.limit, query.max_bytes);
  while (page.samples.empty() || !budget.Spent()) {
    TANDEM_ASSIGN_OR_RETURN(const bool row, select.Step());
    if (!row) break;
    page.samples.push_back(ReadSample(select));
    if (prompt) TANDEM_RETURN_IF_ERROR(AddPrompt(*prompt, page.samples.back()));
    budget.Spend(TextBytes(page.samples.back()));
  }
  if (query.evaluation || query.prompt_id != 0) return page;
  TANDEM_ASSIGN_OR_RETURN(page.groups, GroupsOf(query));
  return page;
}

absl::StatusOr<std::vector<std::string>> RunQueries::ListMetricNames() const {
  std::vector<std::string> names;
  if (!Has("metric_names")) return NamesInSteps();
  TANDEM_ASSIGN_OR_RETURN(SqliteStatement select,
                          db_->Prepare("SELECT name FROM metric_names ORDER BY name"));
  while (true) {
    TANDEM_ASSIGN_OR_RETURN(const bool row, select.Step());
    if (!row) return names;
    names.push_back(select.Text(0));
  }
}

absl::StatusOr<std::vector<std::string>> RunQueries::NamesInSteps() const {
  std::vector<std::string> names;
  if (!Has("steps")) return names;
  TANDEM_ASSIGN_OR_RETURN(
      SqliteStatement select,
      db_->Prepare("SELECT DISTINCT m.key FROM steps, json_each(steps.metrics) AS m WHERE "
                   "json_valid(steps.metrics) ORDER BY m.key"));
  while (true) {
    TANDEM_ASSIGN_OR_RETURN(const bool row, select.Step());
    if (!row) return names;
    names.push_back(select.Text(0));
  }
}

absl::StatusOr<std::map<std::string, std::vector<std::pair<int64_t, double>>>>
RunQueries::ReadMetrics(const std::vector<std::string>& names,
                        int64_t first_step,
                        int64_t last_step) const {
  std::map<std::string, std::vector<std::pair<int64_t, double>>> points;
  if (!Has("steps") || names.empty()) return points;
  // An older build wrote the numbers of a step as one text, which is parsed once for all names.
  const bool by_name = Has("metric_values");
  const std::string list =
      nlohmann::json(names).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  TANDEM_ASSIGN_OR_RETURN(
      SqliteStatement select,
      db_->Prepare(
          by_name ? "SELECT n.name, v.step, v.value FROM metric_names AS n JOIN metric_values "
                    "AS v ON v.name_id = n.id WHERE n.name IN (SELECT value FROM json_each(?)) "
                    "AND v.step BETWEEN ? AND ? ORDER BY n.id, v.step"
                  : "SELECT m.key, s.step, m.value FROM steps AS s, json_each(s.metrics) AS m "
                    "WHERE m.key IN (SELECT value FROM json_each(?)) AND s.step BETWEEN ? AND "
                    "? AND json_valid(s.metrics) ORDER BY s.step"));
  select.Bind(list, first_step, last_step == 0 ? std::numeric_limits<int64_t>::max() : last_step);
  while (true) {
    TANDEM_ASSIGN_OR_RETURN(const bool row, select.Step());
    if (!row) return points;
    points[select.Text(0)].emplace_back(
        select.Int(1),
        select.IsNull(2) ? std::numeric_limits<double>::quiet_NaN() : select.Real(2));
  }
}

absl::StatusOr<std::vector<EvaluationRecord>> RunQueries::ListEvaluations(
    const EvaluationQuery& query) const {
  std::vector<EvaluationRecord> evaluations;
  if (!Has(query.undone ? UndoneName("evaluations") : "evaluations")) return evaluations;
  TANDEM_ASSIGN_OR_RETURN(
      SqliteStatement select,
      db_->Prepare(SelectRecords("evaluations", query.undone) + " WHERE step >= ? ORDER BY step" +
                   (query.newest   ? " DESC LIMIT 1"
                    : query.undone ? ", undone_by"
                                   : "")));
  select.Bind(query.first_step);
  while (true) {
    TANDEM_ASSIGN_OR_RETURN(const bool row, select.Step());
    if (!row) return evaluations;
    const bool spent = query.limit > 0 && std::ssize(evaluations) >= query.limit;
    // All that was undone of a step comes together.
    if (spent && evaluations.back().step != select.Int(0)) return evaluations;
    EvaluationRecord evaluation;
    evaluation.step = select.Int(0);
    evaluation.version = select.Int(1);
    evaluation.prompts = select.Int(2);
    evaluation.samples = select.Int(3);
    evaluation.seconds = select.Real(4);
    evaluation.metrics = NumbersFromJson(select.Text(5));
    evaluation.undone_by = select.Int(6);
    evaluations.push_back(std::move(evaluation));
  }
}

}  // namespace tandem
