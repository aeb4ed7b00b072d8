#include "controller/web/run_api.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <memory>
#include <utility>

#include <absl/strings/match.h>
#include <absl/strings/numbers.h>
#include <absl/time/time.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include "common/base/status.h"
#include "controller/reward/answer_text.h"
#include "controller/store/record_pages.h"
#include "controller/store/sqlite/run_reader.h"
#include "controller/view/run_dir_view.h"
#include "controller/view/run_facts.h"
#include "controller/view/series.h"
#include "controller/view/token_view.h"
#include "controller/web/access.h"
#include "controller/web/json_object.h"
#include "controller/wire/message_json.h"
#include "controller/wire/run_answers.h"
#include "tandem/v1/controller.pb.h"

namespace tandem {
namespace {

using Route = std::vector<std::string>;

constexpr int64_t kMostPoints = 4000, kMostNames = 64;
constexpr int64_t kMostRowsOfPage = 200, kMostTokensOfPage = 4096;
constexpr size_t kBytesOfCutText = 2 << 10;
constexpr absl::Duration kMostTime =
    absl::Seconds(2);  // of reading a run's records, in one request

int HttpStatusOf(absl::StatusCode code) {
  switch (code) {
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kOutOfRange:
      return 400;
    case absl::StatusCode::kPermissionDenied:
      return 403;
    case absl::StatusCode::kNotFound:
      return 404;
    case absl::StatusCode::kFailedPrecondition:
      return 409;
    case absl::StatusCode::kDeadlineExceeded:
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kResourceExhausted:
      return 503;
    default:
      return 500;
  }
}

// A number of the query, or what it is where it is absent.
absl::StatusOr<int64_t> NumberIn(const HttpRequest& request,
                                 const std::string& name,
                                 int64_t absent) {
  const std::string* const text = request.Parameter(name);
  if (text == nullptr || text->empty()) return absent;
  int64_t number = 0;
  if (!absl::SimpleAtoi(*text, &number) || number < 0) {
    return InvalidArgument("{} must be a whole number from 0 on, not \"{}\"", name, *text);
  }
  return number;
}

std::string TextIn(const HttpRequest& request, const std::string& name) {
  const std::string* const text = request.Parameter(name);
  return text == nullptr ? "" : *text;
}

absl::StatusOr<int64_t> NumberInPath(const std::string& text) {
  int64_t number = 0;
  if (absl::SimpleAtoi(text, &number) && number >= 0) return number;
  return MakeStatus(absl::StatusCode::kNotFound, "\"{}\" is no number of a step", text);
}

std::string OptionalNumber(const std::optional<double>& number) {
  return number ? JsonNumber(*number) : "null";
}

std::string NumbersJson(const std::vector<double>& numbers) {
  std::vector<std::string> parts;
  parts.reserve(numbers.size());
  for (const double number : numbers) parts.push_back(JsonNumber(number));
  return JsonList(parts);
}

// With all digits that a number has.
template <typename Number>
std::string ExactNumbersJson(const std::vector<Number>& numbers) {
  std::vector<std::string> parts;
  parts.reserve(numbers.size());
  for (const Number number : numbers) {
    parts.push_back(std::isfinite(number) ? fmt::format("{}", number) : "null");
  }
  return JsonList(parts);
}

template <typename Messages>
std::string MessagesJson(const Messages& messages) {
  std::vector<std::string> parts;
  for (const auto& message : messages) parts.push_back(MessageJson(message));
  return JsonList(parts);
}

std::string EvaluationJson(const EvaluationRecord& evaluation) {
  JsonObject metrics;
  for (const auto& [name, value] : evaluation.metrics) metrics.Add(name, JsonNumber(value));
  return JsonObject()
      .Add("step", std::to_string(evaluation.step))
      .Add("version", std::to_string(evaluation.version))
      .Add("prompts", std::to_string(evaluation.prompts))
      .Add("samples", std::to_string(evaluation.samples))
      .Add("seconds", JsonNumber(evaluation.seconds))
      .Add("metrics", metrics.Finish())
      .Finish();
}

std::string SeriesJson(const Series& series) {
  std::vector<std::string> steps;
  for (const int64_t step : series.steps) steps.push_back(std::to_string(step));
  JsonObject json;
  json.AddText("name", series.name)
      .Add("exact", series.is_exact ? "true" : "false")
      .Add("steps", JsonList(steps))
      .Add("mean", series.is_exact ? ExactNumbersJson(series.mean) : NumbersJson(series.mean));
  if (!series.is_exact) {
    json.Add("min", NumbersJson(series.low)).Add("max", NumbersJson(series.high));
  }
  return json.Finish();
}

// Shortens the texts of a row of a table, whole characters of UTF-8.
void CutTexts(v1::SampleRecord& sample) {
  for (std::string* const text :
       {sample.mutable_prompt(), sample.mutable_response(), sample.mutable_ground_truth()}) {
    if (text->size() <= kBytesOfCutText) continue;
    size_t bytes = kBytesOfCutText;
    while (bytes > 0 && (static_cast<unsigned char>((*text)[bytes]) & 0xC0u) == 0x80u) --bytes;
    text->resize(bytes);
    sample.set_texts_cut(true);
  }
}

std::string FactsJson(const CatalogEntry& entry,
                      const RunFacts& facts,
                      const v1::GetStatusResponse& status) {
  return JsonObject()
      .AddText("id", entry.id)
      .AddText("run_dir", entry.run_dir)
      .AddText("unreadable", "")
      .AddText("started_at", facts.started_at)
      .AddText("model", facts.model)
      .AddText("algorithm", facts.algorithm)
      .AddText("build", facts.build)
      .AddText("numerics_class", facts.numerics_class)
      .Add("reward", facts.rewards.empty() ? "null" : JsonNumber(facts.rewards.back()))
      .Add("rewards", NumbersJson(facts.rewards))
      .Add("held_out", OptionalNumber(facts.held_out))
      .Add("held_out_interval", OptionalNumber(facts.held_out_interval))
      .Add("status", MessageJson(status))
      .Finish();
}

absl::StatusOr<std::string> AnswerRun(RunDirView& view,
                                      const CatalogEntry& entry,
                                      bool in_list,
                                      RunFactsReader& reader) {
  TANDEM_ASSIGN_OR_RETURN(v1::GetStatusResponse status, view.GetStatus());
  if (in_list) {
    status.clear_memory_plan();
    status.clear_logs();
    status.clear_calls();
    status.clear_events();
  }
  TANDEM_ASSIGN_OR_RETURN(const RunFacts facts, reader.Read(view));
  return FactsJson(entry, facts, status);
}

// Whoever asks for too much does not keep others waiting.
absl::StatusOr<std::unique_ptr<RunDirView>> OpenRun(const std::string& run_dir) {
  TANDEM_ASSIGN_OR_RETURN(std::unique_ptr<RunDirView> view, RunDirView::Open(run_dir));
  if (view->records() != nullptr) view->records()->LimitTime(kMostTime);
  return view;
}

// A run that cannot be read says why, and the others are listed.
std::string ReadRow(const CatalogEntry& entry, RunFactsReader& reader) {
  absl::StatusOr<std::string> row;
  const auto view = OpenRun(entry.run_dir);
  row = view.ok() ? AnswerRun(**view, entry, /*in_list=*/true, reader) : view.status();
  if (row.ok()) return *row;
  return JsonObject()
      .AddText("id", entry.id)
      .AddText("run_dir", entry.run_dir)
      .AddText("unreadable", std::string(row.status().message()))
      .Finish();
}

// What changes when anything is written into a run that a list shows: times and sizes of files.
std::string StampOf(const std::string& run_dir) {
  std::string stamp;
  for (const char* name : {"run.db", "run.db-wal", "blackbox", "controller.lock", "pids.json"}) {
    struct stat found {};
    if (stat((run_dir + "/" + name).c_str(), &found) != 0) continue;
    stamp += fmt::format("{} {} {}.{} ", name, found.st_size, found.st_mtim.tv_sec,
                         found.st_mtim.tv_nsec);
  }
  return stamp;
}

bool HasEnded(const std::string& row) {
  for (const char* state : {"finished", "stopped", "failed", "killed"}) {
    if (absl::StrContains(row, fmt::format("\"state\":\"{}\"", state))) return true;
  }
  return false;
}

absl::StatusOr<std::string> AnswerConfig(RunDirView& view) {
  TANDEM_ASSIGN_OR_RETURN(const RunConfig config, ReadRunConfig(view));
  std::vector<std::string> differences;
  for (const ConfigDifference& difference : config.differences) {
    differences.push_back(JsonObject()
                              .AddText("key", difference.key)
                              .AddText("value", difference.value)
                              .AddText("default", difference.default_value)
                              .Finish());
  }
  return JsonObject()
      .AddText("yaml", config.yaml)
      .Add("differences", JsonList(differences))
      .Finish();
}

absl::StatusOr<std::string> AnswerMetrics(RunDirView& view) {
  std::vector<std::string> names;
  if (view.records() != nullptr) {
    TANDEM_ASSIGN_OR_RETURN(names, view.records()->ListMetricNames());
  }
  for (std::string& name : names) name = JsonText(name);
  return JsonObject().Add("names", JsonList(names)).Finish();
}

absl::StatusOr<std::string> AnswerSeries(RunDirView& view, const HttpRequest& request) {
  TANDEM_ASSIGN_OR_RETURN(const int64_t first, NumberIn(request, "from", 0));
  TANDEM_ASSIGN_OR_RETURN(const int64_t last, NumberIn(request, "to", 0));
  TANDEM_ASSIGN_OR_RETURN(const int64_t points, NumberIn(request, "points", 800));
  const auto [begin, end] = request.query.equal_range("name");
  if (std::distance(begin, end) > kMostNames) {
    return InvalidArgument("a request has at most {} names", kMostNames);
  }
  std::vector<std::string> names, list;
  for (auto name = begin; name != end; ++name) names.push_back(name->second);
  std::map<std::string, MetricPoints> values;
  if (view.records() != nullptr) {
    TANDEM_ASSIGN_OR_RETURN(values, view.records()->ReadMetrics(names, first, last));
  }
  const auto most = static_cast<size_t>(std::clamp<int64_t>(points, 1, kMostPoints));
  for (const Series& series : MakeSeries(names, values, most)) list.push_back(SeriesJson(series));
  return JsonObject().Add("series", JsonList(list)).Finish();
}

absl::StatusOr<std::string> AnswerStepPage(RunDirView& view, const HttpRequest& request) {
  TANDEM_ASSIGN_OR_RETURN(const int64_t before, NumberIn(request, "before", 0));
  TANDEM_ASSIGN_OR_RETURN(const int64_t limit, NumberIn(request, "limit", 100));
  std::vector<v1::StepRecord> newest_first;
  if (before != 1) {
    v1::ListStepsRequest list;
    list.set_last_step(before == 0 ? 0 : before - 1);
    list.set_limit(std::clamp<int64_t>(limit, 1, kMostRowsOfPage));
    list.set_no_ledgers(true);
    TANDEM_ASSIGN_OR_RETURN(const v1::ListStepsResponse page, view.ListSteps(list));
    newest_first.assign(page.steps().rbegin(), page.steps().rend());
  }
  const int64_t oldest = newest_first.empty() ? 0 : newest_first.back().step();
  return JsonObject()
      .Add("steps", MessagesJson(newest_first))
      .Add("next_before", std::to_string(oldest > 1 ? oldest : 0))
      .Finish();
}

absl::StatusOr<std::optional<EvaluationRecord>> EvaluationAfter(RunDirView& view, int64_t step) {
  if (view.records() == nullptr) return std::nullopt;
  TANDEM_ASSIGN_OR_RETURN(const std::vector<EvaluationRecord> next,
                          view.records()->ListEvaluations({.first_step = step, .limit = 1}));
  if (next.empty() || next.front().step != step) return std::nullopt;
  return next.front();
}

absl::StatusOr<std::string> AnswerStep(RunDirView& view, const std::string& text) {
  TANDEM_ASSIGN_OR_RETURN(const int64_t number, NumberInPath(text));
  v1::ListStepsRequest list;
  list.set_first_step(number);
  list.set_last_step(number);
  list.set_details(true);
  TANDEM_ASSIGN_OR_RETURN(const v1::ListStepsResponse page, view.ListSteps(list));
  if (number == 0 || page.steps().empty()) {
    return MakeStatus(absl::StatusCode::kNotFound, "the run has no step {}", number);
  }
  v1::ListSamplesRequest groups;
  groups.set_step(number);
  groups.set_limit(1);
  TANDEM_ASSIGN_OR_RETURN(const v1::ListSamplesResponse samples, view.ListSamples(groups));
  JsonObject answer;
  answer.Add("step", MessageJson(page.steps(0))).Add("groups", MessagesJson(samples.groups()));
  TANDEM_ASSIGN_OR_RETURN(const auto evaluation, EvaluationAfter(view, number));
  if (evaluation) answer.Add("evaluation", EvaluationJson(*evaluation));
  return answer.Finish();
}

absl::StatusOr<int64_t> NewestStep(RunDirView& view) {
  v1::ListStepsRequest list;
  list.set_limit(1);
  list.add_metrics(kRewardMean);
  TANDEM_ASSIGN_OR_RETURN(const v1::ListStepsResponse page, view.ListSteps(list));
  return page.steps().empty() ? 0 : page.steps(0).step();
}

absl::StatusOr<std::string> AnswerSamplePage(RunDirView& view, const HttpRequest& request) {
  v1::ListSamplesRequest list;
  TANDEM_ASSIGN_OR_RETURN(int64_t step, NumberIn(request, "step", 0));
  if (step == 0) {
    TANDEM_ASSIGN_OR_RETURN(step, NewestStep(view));
  }
  TANDEM_ASSIGN_OR_RETURN(const int64_t limit, NumberIn(request, "limit", 50));
  TANDEM_ASSIGN_OR_RETURN(const int64_t offset, NumberIn(request, "cursor", 0));
  list.set_step(step);
  list.set_limit(std::clamp<int64_t>(limit, 1, kMostRowsOfPage));
  list.set_offset(offset);
  list.set_where(AsUtf8(TextIn(request, "where")));
  list.set_contains(AsUtf8(TextIn(request, "q")));
  list.set_sort(AsUtf8(TextIn(request, "sort")));
  TANDEM_ASSIGN_OR_RETURN(const int64_t evicted, NumberIn(request, "evicted", 0));
  list.set_evicted(evicted != 0);
  v1::ListSamplesResponse page;
  if (step != 0) {
    TANDEM_ASSIGN_OR_RETURN(page, view.ListSamples(list));
  }
  for (v1::SampleRecord& sample : *page.mutable_samples()) CutTexts(sample);
  const int64_t next = offset + page.samples_size();
  return JsonObject()
      .AddText("step", std::to_string(step))
      .Add("samples", MessagesJson(page.samples()))
      .Add("total", std::to_string(page.total()))
      .Add("groups", MessagesJson(page.groups()))
      .AddText("next_cursor",
               page.samples_size() > 0 && next < page.total() ? std::to_string(next) : "")
      .Finish();
}

absl::StatusOr<uint64_t> SampleIdInPath(const std::string& text) {
  uint64_t id = 0;
  if (absl::SimpleAtoi(text, &id)) return id;
  return MakeStatus(absl::StatusCode::kNotFound, "\"{}\" is no id of a sample", text);
}

absl::StatusOr<std::string> AnswerSample(RunDirView& view,
                                         const std::string& step_text,
                                         const std::string& id_text) {
  TANDEM_ASSIGN_OR_RETURN(const int64_t step, NumberInPath(step_text));
  TANDEM_ASSIGN_OR_RETURN(const uint64_t id, SampleIdInPath(id_text));
  if (step == 0) return MakeStatus(absl::StatusCode::kNotFound, "steps are counted from 1");
  v1::ListSamplesRequest one;
  one.set_step(step);
  one.set_sample_id(id);
  TANDEM_ASSIGN_OR_RETURN(const v1::ListSamplesResponse found, view.ListSamples(one));
  if (found.samples().empty()) {
    return MakeStatus(absl::StatusCode::kNotFound, "step {} has no sample {}", step, id);
  }
  v1::ListSamplesRequest group;
  group.set_step(step);
  group.set_where("group=" + std::to_string(found.samples(0).group()));
  TANDEM_ASSIGN_OR_RETURN(v1::ListSamplesResponse siblings, view.ListSamples(group));
  for (v1::SampleRecord& sample : *siblings.mutable_samples()) CutTexts(sample);
  return JsonObject()
      .Add("sample", MessageJson(found.samples(0)))
      .Add("siblings", MessagesJson(siblings.samples()))
      .Finish();
}

absl::StatusOr<std::string> AnswerTokens(RunDirView& view,
                                         const HttpRequest& request,
                                         const Route& rest,
                                         TokenReader& reader) {
  TANDEM_ASSIGN_OR_RETURN(const int64_t step, NumberInPath(rest[1]));
  TANDEM_ASSIGN_OR_RETURN(const uint64_t id, SampleIdInPath(rest[2]));
  TANDEM_ASSIGN_OR_RETURN(const int64_t first, NumberIn(request, "from", 0));
  TANDEM_ASSIGN_OR_RETURN(const int64_t count, NumberIn(request, "count", 512));
  TANDEM_ASSIGN_OR_RETURN(
      const TokenWindow window,
      reader.Read(view.run_dir(), step, id, first, std::min(count, kMostTokensOfPage)));
  std::vector<std::string> ids, texts;
  for (const int32_t token : window.ids) ids.push_back(std::to_string(token));
  for (const std::string& text : window.texts) texts.push_back(JsonText(text));
  JsonObject values;
  for (const auto& [name, numbers] : window.values) {
    // They are floats in the files, and read as such.
    values.Add(name, ExactNumbersJson(std::vector<float>(numbers.begin(), numbers.end())));
  }
  return JsonObject()
      .Add("prompt_tokens", std::to_string(window.prompt_tokens))
      .Add("tokens", std::to_string(window.tokens))
      .Add("from", std::to_string(window.first))
      .Add("ids", JsonList(ids))
      .Add("texts", JsonList(texts))
      .AddText("note", window.note)
      .Add("values", values.Finish())
      .Finish();
}

absl::StatusOr<std::string> AnswerEvaluations(RunDirView& view) {
  std::vector<std::string> list;
  if (view.records() != nullptr) {
    TANDEM_RETURN_IF_ERROR(
        ForEachEvaluation(*view.records(), {}, [&list](const EvaluationRecord& evaluation) {
          list.push_back(EvaluationJson(evaluation));
        }));
  }
  return JsonObject().Add("evaluations", JsonList(list)).Finish();
}

absl::StatusOr<std::string> AnswerEvents(RunDirView& view, const HttpRequest& request) {
  TANDEM_ASSIGN_OR_RETURN(const int64_t limit, NumberIn(request, "limit", 200));
  v1::GetStatusResponse status;
  if (view.records() != nullptr) {
    TANDEM_ASSIGN_OR_RETURN(
        const std::vector<EventRecord> events,
        view.records()->ListEvents(std::clamp<int64_t>(limit, 1, 10 * kMostRowsOfPage)));
    AddEventsToStatus(events, status);
    for (v1::RunEvent& event : *status.mutable_events()) event.set_text(AsUtf8(event.text()));
  }
  std::reverse(status.mutable_events()->begin(), status.mutable_events()->end());
  return JsonObject().Add("events", MessagesJson(status.events())).Finish();
}

// `rest`: the parts after the run's name, at least one.
absl::StatusOr<std::string> AnswerAbout(RunDirView& view,
                                        const HttpRequest& request,
                                        const Route& rest,
                                        TokenReader& tokens) {
  const std::string& what = rest[0];
  if (rest.size() == 1) {
    if (what == "config") return AnswerConfig(view);
    if (what == "metrics") return AnswerMetrics(view);
    if (what == "series") return AnswerSeries(view, request);
    if (what == "steps") return AnswerStepPage(view, request);
    if (what == "samples") return AnswerSamplePage(view, request);
    if (what == "evaluations") return AnswerEvaluations(view);
    if (what == "events") return AnswerEvents(view, request);
  }
  if (rest.size() == 2 && what == "steps") return AnswerStep(view, rest[1]);
  if (rest.size() == 3 && what == "samples") return AnswerSample(view, rest[1], rest[2]);
  if (rest.size() == 4 && what == "samples" && rest[3] == "tokens") {
    return AnswerTokens(view, request, rest, tokens);
  }
  return MakeStatus(absl::StatusCode::kNotFound, "the API has no {}", request.path);
}

absl::StatusOr<std::string> AnswerTo(const RunCatalog& catalog,
                                     const HttpRequest& request,
                                     const Route& route,
                                     RunFactsReader& facts,
                                     EndedRows& rows_of_ended,
                                     TokenReader& tokens) {
  if (route.empty() || route[0] != "runs") {
    return MakeStatus(absl::StatusCode::kNotFound, "the API has no {}", request.path);
  }
  if (route.size() == 1) {
    std::vector<std::string> rows;
    for (const CatalogEntry& entry : catalog.List())
      rows.push_back(rows_of_ended.Row(entry, facts));
    return JsonObject().Add("runs", JsonList(rows)).Finish();
  }
  TANDEM_ASSIGN_OR_RETURN(const std::string dir, catalog.FindDirectory(route[1]));
  TANDEM_ASSIGN_OR_RETURN(const auto view, OpenRun(dir));
  if (route.size() == 2) return AnswerRun(*view, {route[1], dir}, /*in_list=*/false, facts);
  return AnswerAbout(*view, request, {route.begin() + 2, route.end()}, tokens);
}

}  // namespace

std::string EndedRows::Row(const CatalogEntry& entry, RunFactsReader& reader) {
  const std::string stamp = StampOf(entry.run_dir);
  const std::string key = entry.id + " " + entry.run_dir;
  {
    const MutexLock lock(mutex_);
    const auto found = rows_.find(key);
    if (found != rows_.end() && found->second.stamp == stamp) return found->second.json;
  }
  std::string json = ReadRow(entry, reader);
  const MutexLock lock(mutex_);
  if (rows_.size() >= kMost) rows_.clear();
  if (HasEnded(json)) rows_[key] = {stamp, json};
  return json;
}

HttpResponse RunApi::Answer(const HttpRequest& request, const std::vector<std::string>& route) {
  if (request.method != "GET") {
    return RefuseRequest(405, "UNIMPLEMENTED", "the API only reads: ask by GET");
  }
  absl::StatusOr<std::string> body = AnswerTo(catalog_, request, route, facts_, ended_, tokens_);
  if (!body.ok()) {
    return RefuseRequest(HttpStatusOf(body.status().code()),
                         absl::StatusCodeToString(body.status().code()),
                         AsUtf8(std::string(body.status().message())));
  }
  HttpResponse answer;
  answer.content_type = "application/json";
  answer.body = *std::move(body);
  return answer;
}

}  // namespace tandem
