#include "controller/report/json_progress.h"

#include <cmath>
#include <utility>

#include <absl/time/time.h>
#include <nlohmann/json.hpp>

#include "controller/report/run_figures.h"
#include "controller/store/post_mortem/event_log.h"

namespace tandem {
namespace {

using Json = nlohmann::ordered_json;

// JSON has no NaN: null keeps the line valid and the gap visible.
Json Number(double value) { return std::isfinite(value) ? Json(value) : Json(); }

Json Metrics(const std::map<std::string, double>& metrics) {
  Json object = Json::object();
  for (const auto& [name, value] : metrics) object[name] = Number(value);
  return object;
}

Json Event(Clock& clock, const char* event) {
  return {{"event", event},
          {"time", absl::FormatTime(absl::RFC3339_full, clock.WallNow(), absl::UTCTimeZone())}};
}

Json Phases(const std::vector<PhaseTime>& phases) {
  Json list = Json::array();
  for (const PhaseTime& phase : phases) {
    list.push_back({{"phase", phase.phase},
                    {"seconds", Number(phase.seconds)},
                    {"peak_bytes", phase.peak_bytes}});
  }
  return list;
}

Json Samples(const std::vector<SampleRecord>& samples) {
  Json list = Json::array();
  for (const SampleRecord& sample : samples) {
    Json object = {{"sample_id", std::to_string(sample.sample_id)},
                   {"group", sample.group},
                   {"reward", Number(sample.reward)},
                   {"advantage", Number(sample.advantage)},
                   {"response_tokens", sample.response_tokens}};
    if (sample.texts_kept)
      object.update({{"prompt", sample.prompt}, {"response", sample.response}});
    list.push_back(std::move(object));
  }
  return list;
}

Json LogProbs(const LogProbSummary& comparison) {
  return {{"compared", comparison.compared},
          {"identical", comparison.identical},
          {"max_abs_difference", Number(comparison.max_abs_difference)},
          {"mean_abs_difference", Number(comparison.mean_abs_difference)}};
}

// In one call, so that no other output gets between; bytes that are no UTF-8 become U+FFFD.
void Write(std::FILE* out, const Json& object) {
  const std::string line =
      object.dump(-1, ' ', /*ensure_ascii=*/false, Json::error_handler_t::replace) + "\n";
  std::fwrite(line.data(), 1, line.size(), out);
  std::fflush(out);
}

}  // namespace

void JsonProgress::OnRunStart(const RunInfo& info) {
  Json line = Event(clock_, "run");
  line.update({{"run_id", info.run_id},
               {"run_dir", info.run_dir},
               {"build", info.build},
               {"first_step", info.first_step},
               {"total_steps", info.total_steps}});
  Write(out_, line);
}

void JsonProgress::OnPhase(int64_t step, const std::string& phase) {
  Json line = Event(clock_, "phase");
  line.update({{"step", step}, {"phase", phase}});
  Write(out_, line);
}

void JsonProgress::OnLogProbs(int64_t, const LogProbSummary& comparison) {
  log_probs_ = comparison;
}

void JsonProgress::OnShortened(int64_t steps) {
  Json line = Event(clock_, "shortened");
  line["total_steps"] = steps;
  Write(out_, line);
}

void JsonProgress::OnStepDetails(int64_t, const StepDetails& details) { details_ = details; }

void JsonProgress::OnStep(const StepRecord& record) {
  Json line = Event(clock_, "step");
  line.update({{"step", record.step},
               {"version", record.version},
               {"metrics", Metrics(record.metrics)},
               {"phases", Phases(record.phases)}});
  if (log_probs_.compared > 0) line["log_probs"] = LogProbs(log_probs_);
  if (!details_.weight_digest.empty()) {
    line["weights"] = {{"bytes", details_.weight_bytes}, {"digest", details_.weight_digest}};
  }
  Json load = Json::object();
  if (details_.kv_share) load["kv_share"] = Number(*details_.kv_share);
  if (details_.waiting) load["waiting"] = *details_.waiting;
  if (!load.empty()) line["load"] = std::move(load);
  line["samples"] = Samples(details_.samples);
  Write(out_, line);
  log_probs_ = {};
  details_ = {};
}

void JsonProgress::OnEvaluation(const EvaluationRecord& record) {
  Json line = Event(clock_, "evaluation");
  line.update({{"step", record.step},
               {"version", record.version},
               {"prompts", record.prompts},
               {"samples", record.samples},
               {"seconds", Number(record.seconds)},
               {"metrics", Metrics(record.metrics)}});
  Write(out_, line);
}

void JsonProgress::OnMessage(const std::string& text) {
  Json line = Event(clock_, "message");
  line["text"] = text;
  Write(out_, line);
}

void JsonProgress::OnRunEnd(const RunSummary& summary, const RunFigures& figures) {
  Json line = Event(clock_, "end");
  line.update({{"outcome", RunOutcomeName(OutcomeOf(summary))},
               {"error", summary.error},
               {"steps", summary.steps},
               {"seconds", Number(summary.seconds)},
               {"skipped_updates", figures.skipped_updates},
               {"checkpoint", summary.checkpoint},
               {"report", summary.report}});
  Write(out_, line);
}

}  // namespace tandem
