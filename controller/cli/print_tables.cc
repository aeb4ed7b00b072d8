#include "controller/cli/print_tables.h"

#include <algorithm>
#include <array>
#include <map>
#include <numeric>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "controller/cli/status/weight_route_table.h"
#include "controller/report/format.h"
#include "controller/report/generation_text.h"
#include "controller/report/terminal_text.h"
#include "controller/store/run_store.h"
#include "controller/wire/message_json.h"

namespace tandem {
namespace {

std::string RoleName(v1::Role role) {
  switch (role) {
    case v1::ROLE_CONTROLLER:
      return "controller";
    case v1::ROLE_TRAINER:
      return "trainer";
    case v1::ROLE_ROLLOUT:
      return "rollout";
    default:
      return "unknown";
  }
}

std::string VersionText(int64_t version) { return version < 0 ? "-" : std::to_string(version); }

// A controller of another build may not tell the step that is being saved.
int64_t NewestStep(const v1::GetStatusResponse& status) {
  return std::max(status.step(), status.made_step());
}

// Of a step or of an update.
template <typename Record>
std::string Metric(const Record& record, const char* name) {
  const auto found = record.metrics().find(name);
  return found == record.metrics().end() ? "-" : fmt::format("{:.4g}", found->second);
}

std::vector<StepRecord> StepRecordsFromProto(const v1::ListStepsResponse& steps) {
  std::vector<StepRecord> records;
  for (const v1::StepRecord& step : steps.steps()) {
    records.push_back(
        {.step = step.step(), .metrics = {step.metrics().begin(), step.metrics().end()}});
  }
  return records;
}

std::string FinishText(v1::FinishReason reason) {
  switch (reason) {
    case v1::FINISH_REASON_STOP:
      return "stop";
    case v1::FINISH_REASON_LENGTH:
      return "length";
    case v1::FINISH_REASON_ABORTED:
      return "aborted";
    case v1::FINISH_REASON_CUT:
      return "cut";
    default:
      return "-";
  }
}

// The weight version of a response or, for several, each with its number of tokens: "v3:120 v4:57".
std::string SampleVersionsText(const v1::SampleRecord& sample) {
  std::vector<std::pair<int64_t, int64_t>> versions;  // version and tokens
  for (const v1::Segment& segment : sample.segments()) {
    // Tool output may separate two segments of one version.
    const bool goes_on = !versions.empty() && versions.back().first == segment.weight_version();
    if (!goes_on) versions.emplace_back(segment.weight_version(), 0);
    versions.back().second += segment.length();
  }
  if (versions.size() < 2) return std::to_string(sample.weight_version());
  std::vector<std::string> parts;
  for (const auto& [version, tokens] : versions) {
    parts.push_back(fmt::format("v{}:{}", version, tokens));
  }
  return fmt::format("{}", fmt::join(parts, " "));
}

}  // namespace

std::string PauseText(const v1::GetStatusResponse& status) {
  const std::string done =
      fmt::format("{} of {} steps are finished", status.step(), status.total_steps());
  if (status.state() == "starting") {
    return "pausing before the first step: the workers start, load and get their weights all the "
           "same; then the run waits for `tandemctl resume`, or `run N`\n";
  }
  if (status.state() == "finished" || status.state() == "failed") {
    return fmt::format("nothing to pause: the run has {}; {}\n", status.state(), done);
  }
  if (!status.phase().empty()) {
    return fmt::format("pausing when the step in progress (phase {}) has ended; {}\n",
                       status.phase(), done);
  }
  return fmt::format("paused; {}\n", done);
}

namespace {

// A pass of a large layer is not a standstill.
constexpr double kStandstillSeconds = 10;

std::string DoingText(const v1::EngineProgress& progress) {
  if (progress.activity().empty()) return "-";
  if (progress.still_seconds() < kStandstillSeconds) return progress.activity();
  return fmt::format("{}, no progress for {}", progress.activity(),
                     FormatSeconds(progress.still_seconds()));
}

std::string Count(int64_t value) { return std::to_string(value); }

// A row per rollout that told its load; empty without one.
std::string RolloutTable(const v1::GetStatusResponse& status) {
  std::vector<std::vector<std::string>> rows = {{"rollout", "state", "version", "queue", "running",
                                                 "waiting", "preempted", "KV used", "KV free",
                                                 "prefix hits", "tokens/s"}};
  for (const v1::WorkerStatus& worker : status.workers()) {
    if (!worker.has_generation()) continue;
    const v1::GenerationLoad& load = worker.generation();
    rows.push_back({Count(worker.worker().rank()), worker.phase(), VersionText(worker.version()),
                    Count(load.queued()), Count(load.running()), Count(load.waiting()),
                    Count(load.preemptions()), Count(load.kv_blocks_used()),
                    Count(load.kv_blocks() - load.kv_blocks_used()),
                    fmt::format("{} tok", load.prefix_hit_tokens()),
                    fmt::format("{:.0f}", worker.tokens_per_second())});
  }
  return rows.size() == 1 ? "" : FormatTable(rows);
}

std::string CollectiveText(const v1::CollectiveReport& collective) {
  if (collective.name().empty()) return "-";
  const std::string what =
      collective.name() +
      (collective.bytes() > 0 ? " of " + FormatBytes(collective.bytes()) : std::string());
  const std::string time = FormatSeconds(collective.seconds());
  return collective.running() ? what + ", for " + time : what + ", " + time + " ago";
}

// A row per trainer that told its load; empty without one.
std::string TrainerTable(const v1::GetStatusResponse& status) {
  std::vector<std::vector<std::string>> rows = {
      {"trainer", "phase", "version", "layer", "shard", "last collective"}};
  for (const v1::WorkerStatus& worker : status.workers()) {
    if (!worker.has_training()) continue;
    const v1::TrainingLoad& load = worker.training();
    rows.push_back({Count(worker.worker().rank()), worker.phase(), VersionText(worker.version()),
                    load.layer().empty() ? "-" : load.layer(), FormatBytes(load.shard_bytes()),
                    CollectiveText(load.last_collective())});
  }
  return rows.size() == 1 ? "" : FormatTable(rows);
}

}  // namespace

namespace {

// Of files: how long it ran, which start it was; how many restarts there were is not in them.
std::string LifeText(const v1::GetStatusResponse& status) {
  if (!status.from_files()) {
    return fmt::format("up {}  restarts {}", FormatSeconds(status.uptime_seconds()),
                       status.restarts());
  }
  return fmt::format("ran {}  start {}",
                     status.uptime_seconds() > 0 ? FormatSeconds(status.uptime_seconds()) : "-",
                     status.attempt() == 0 ? "-" : std::to_string(status.attempt()));
}

std::string PhaseText(const v1::GetStatusResponse& status) {
  if (status.phase().empty()) return "-";
  if (!status.from_files()) return status.phase();
  // Not for how long: when a killed run died is not known, only when it last noted something.
  return fmt::format("{} began at {}", status.phase(), status.phase_began_at());
}

}  // namespace

namespace {

bool HasSeveralNodes(const v1::GetStatusResponse& status) {
  const auto& workers = status.workers();
  return std::any_of(workers.begin(), workers.end(), [&](const v1::WorkerStatus& worker) {
    return worker.node() != workers.begin()->node();
  });
}

// "trainer 1 (pid 712), rollout 1 (ended: signal 9, again)"
std::string AgentProcessesText(const v1::AgentStatus& agent) {
  std::vector<std::string> parts;
  for (const v1::AgentProcess& process : agent.processes()) {
    const bool by_signal = process.exit_signal() != 0;
    const std::string at =
        process.pid() != 0 ? fmt::format("pid {}", process.pid())
                           : fmt::format("ended: {} {}", by_signal ? "signal" : "exit code",
                                         by_signal ? process.exit_signal() : process.exit_code());
    parts.push_back(fmt::format("{} {} ({}{})", RoleName(process.role()), process.rank(), at,
                                process.starts() > 1 ? ", again" : ""));
  }
  return parts.empty() ? "-" : fmt::format("{}", fmt::join(parts, ", "));
}

// A row per agent; empty without one.
std::string AgentTable(const v1::GetStatusResponse& status) {
  std::vector<std::vector<std::string>> rows = {
      {"agent", "node", "state", "heartbeat", "pid", "processes"}};
  for (const v1::AgentStatus& agent : status.agents()) {
    rows.push_back({fmt::format("host {} of {}", agent.host_index(), agent.hosts()), agent.node(),
                    agent.state(), fmt::format("{:.1f} s ago", agent.seconds_since_heartbeat()),
                    std::to_string(agent.pid()), AgentProcessesText(agent)});
  }
  return rows.size() == 1 ? "" : FormatTable(rows);
}

}  // namespace

std::string StatusTable(const v1::GetStatusResponse& status) {
  std::string text =
      fmt::format("run {}  {}  phase {}  step {}/{}{}  weight version {}  {}\n", status.run_id(),
                  status.state(), PhaseText(status), NewestStep(status), status.total_steps(),
                  NewestStep(status) > status.step() ? " (made, being saved or validated)" : "",
                  status.version(), LifeText(status));
  if (!status.as_of().empty()) {
    text += fmt::format("as of {}{}\n", status.as_of(),
                        status.from_files() ? ", from the files in " + status.run_dir() : "");
  }
  if (!status.note().empty()) text += status.note() + "\n";
  if (!status.error().empty()) text += "error: " + OneLine(status.error(), 0) + "\n";
  if (!status.waits_for().empty()) text += "waits: " + OneLine(status.waits_for(), 0) + "\n";
  if (status.from_files()) return text;
  std::vector<std::vector<std::string>> rows = {{"worker", "rank", "device", "incarnation", "state",
                                                 "phase", "doing", "version", "heartbeat", "memory",
                                                 "peak", "numerics", "kernels", "pid"}};
  const bool nodes = HasSeveralNodes(status);
  if (nodes) rows.front().push_back("node");
  for (const v1::WorkerStatus& worker : status.workers()) {
    rows.push_back({RoleName(worker.worker().role()), std::to_string(worker.worker().rank()),
                    worker.device(), std::to_string(worker.worker().incarnation()), worker.state(),
                    worker.phase().empty() ? "-" : worker.phase(), DoingText(worker.progress()),
                    VersionText(worker.version()),
                    fmt::format("{:.1f} s ago", worker.seconds_since_heartbeat()),
                    FormatBytes(worker.ledger().process_bytes()),
                    FormatBytes(worker.ledger().process_peak_bytes()),
                    worker.numerics_class().empty() ? "-" : worker.numerics_class(),
                    worker.kernel_set().empty() ? "-" : worker.kernel_set(),
                    std::to_string(worker.pid())});
    if (nodes) rows.back().push_back(worker.node());
  }
  text += FormatTable(rows) + RolloutTable(status) + TrainerTable(status) +
          WeightRouteTable(status) + AgentTable(status);
  return text;
}

namespace {

std::string CallsTable(const v1::GetStatusResponse& status) {
  std::vector<std::vector<std::string>> rows = {
      {"worker", "last call", "step", "began", "answered"}};
  for (const v1::LastCall& call : status.calls()) {
    rows.push_back({call.worker(), call.method(), std::to_string(call.step()),
                    call.began_at().empty() ? "-" : call.began_at(),
                    call.answered_at().empty() ? "no"
                    : call.code() == "OK"      ? call.answered_at()
                                               : call.answered_at() + " " + call.code()});
  }
  return FormatTable(rows);
}

}  // namespace

std::string PostMortemText(const v1::GetStatusResponse& status) {
  std::string text;
  if (status.calls_size() > 0) text += CallsTable(status);
  if (status.events_size() > 0) text += "newest events\n";
  for (const v1::RunEvent& event : status.events()) {
    text += fmt::format("  {}  step {}  {}{}  {}\n", event.time(), event.step(),
                        event.severity() == "info" ? "" : event.severity() + ", ", event.kind(),
                        OneLine(event.text(), 200));
  }
  for (const v1::LogTail& log : status.logs()) {
    text += fmt::format("last lines of logs/{}\n", log.file());
    for (const std::string& line : log.lines()) text += "  " + OneLine(line, 200) + "\n";
  }
  return text;
}

std::string NewestStepText(const v1::ListStepsResponse& steps) {
  const std::vector<StepRecord> records = StepRecordsFromProto(steps);
  const std::string partial = records.empty() ? "" : PartialStepText(records.back());
  if (partial.empty()) return "";
  return fmt::format("partial rollout in step {}: {}\n", records.back().step, partial);
}

std::string NotMadeAgainText(const v1::GetStatusResponse& status) {
  const int64_t last = status.last_lost_step();
  const int64_t first = NewestStep(status) + 1;
  if (last < first) return "";
  const bool waits = status.state() == "paused";
  return fmt::format(
      "undone: {} lost in a recovery, as no checkpoint had {}, and {} not made again yet "
      "(tandemctl steps --undone){}\n",
      first == last ? fmt::format("step {} was", first)
                    : fmt::format("steps {} to {} were", first, last),
      first == last ? "it" : "them", first == last ? "is" : "are",
      waits ? fmt::format("; tandemctl run {} makes {} again", last - first + 1,
                          first == last ? "it" : "them")
            : "");
}

namespace {

std::string UndoneTable(const v1::ListStepsResponse& steps) {
  std::vector<std::vector<std::string>> rows = {
      {"step", "undone by", "version", "reward", "grad_norm", "finished at"}};
  for (const v1::StepRecord& step : steps.steps()) {
    rows.push_back({std::to_string(step.step()), fmt::format("generation {}", step.undone_by()),
                    std::to_string(step.version()), Metric(step, kRewardMean),
                    Metric(step, kGradNorm), step.finished_at()});
  }
  return FormatTable(rows);
}

std::string SampleText(const v1::SampleRecord& sample, const std::string& text, size_t width) {
  return sample.texts_dropped() ? "-" : OneLine(text, width);
}

}  // namespace

std::string StepsTable(const v1::ListStepsResponse& steps) {
  if (steps.steps_size() > 0 && steps.steps(0).undone_by() != 0) return UndoneTable(steps);
  std::vector<std::vector<std::string>> rows = {{"step", "version", "reward", "length", "loss",
                                                 "pg_loss", "kl_loss", "entropy", "ppo_kl",
                                                 "clipfrac", "grad_norm", "lr", "seconds"}};
  for (const v1::StepRecord& step : steps.steps()) {
    rows.push_back({std::to_string(step.step()), std::to_string(step.version()),
                    Metric(step, kRewardMean), Metric(step, kResponseLengthMean),
                    Metric(step, kLoss), Metric(step, kPolicyLoss), Metric(step, kKlLoss),
                    Metric(step, kEntropy), Metric(step, kPolicyKl), Metric(step, kClipFraction),
                    Metric(step, kGradNorm), Metric(step, kLearningRate),
                    Metric(step, kStepSeconds)});
  }
  std::string resent;
  for (const v1::StepRecord& step : steps.steps()) {
    const auto found = step.metrics().find(kResentWeights);
    if (found == step.metrics().end()) continue;
    resent +=
        fmt::format("step {}: weights were sent again to {:.0f} rollout(s) that had lost them\n",
                    step.step(), found->second);
  }
  const std::vector<StepRecord> records = StepRecordsFromProto(steps);
  std::string text = FormatTable(rows) + resent;
  const auto partial = PartialRows(records);
  if (!partial.empty()) {
    return text + "partial rollout\n" + FormatTable(partial) + PartialText(records) + "\n";
  }
  const std::string tail = TailText(records, 0);
  return text + (tail.empty() ? "" : tail + "\n");
}

namespace {

// A character per bin, by its share of the fullest one; "·" for an empty one.
std::string BinsText(const v1::Histogram& histogram) {
  constexpr std::array<const char*, 8> kBars = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  const int64_t most = std::max<int64_t>(
      1, histogram.counts().empty()
             ? 0
             : *std::max_element(histogram.counts().begin(), histogram.counts().end()));
  std::string text;
  for (const int64_t count : histogram.counts()) {
    const double share = static_cast<double>(count) / static_cast<double>(most);
    text += count <= 0 ? "·" : kBars[static_cast<size_t>(std::clamp(share * 7.999, 0.0, 7.0))];
  }
  return text;
}

std::string HistogramTable(const v1::StepRecord& step) {
  std::vector<std::vector<std::string>> rows = {
      {"distribution", "count", "lowest", "highest", "in equal bins"}};
  for (const v1::Histogram& histogram : step.histograms()) {
    const int64_t count =
        std::accumulate(histogram.counts().begin(), histogram.counts().end(), int64_t{0});
    rows.push_back({histogram.name(), std::to_string(count), fmt::format("{:.4g}", histogram.low()),
                    fmt::format("{:.4g}", histogram.high()), BinsText(histogram)});
  }
  return rows.size() == 1 ? "" : FormatTable(rows);
}

// The metrics of an update that StepsTable has of a step.
std::string UpdateTable(const v1::StepRecord& step) {
  std::vector<std::vector<std::string>> rows = {{"update", "version", "samples", "tokens", "loss",
                                                 "pg_loss", "kl_loss", "entropy", "ppo_kl",
                                                 "clipfrac", "grad_norm", "lr", "skipped"}};
  for (const v1::UpdateRecord& update : step.updates()) {
    rows.push_back({std::to_string(update.ordinal()), std::to_string(update.version()),
                    std::to_string(update.samples()), std::to_string(update.tokens())});
    for (const char* name : {kLoss, kPolicyLoss, kKlLoss, kEntropy, kPolicyKl, kClipFraction,
                             kGradNorm, kLearningRate}) {
      rows.back().push_back(Metric(update, name));
    }
    rows.back().push_back(update.metrics().contains(kSkippedUpdates) ? "yes" : "no");
  }
  return rows.size() == 1 ? "" : FormatTable(rows);
}

std::string SyncTable(const v1::StepRecord& step) {
  std::vector<std::vector<std::string>> rows = {
      {"weights to", "version", "at", "bytes", "seconds", "digest", "checked"}};
  for (const v1::WeightSyncRecord& sync : step.syncs()) {
    rows.push_back({fmt::format("rollout {}", sync.rank()), std::to_string(sync.version()),
                    sync.time(), std::to_string(sync.bytes()),
                    fmt::format("{:.3g}", sync.seconds()), sync.digest(),
                    sync.checked() ? "equal" : "no"});
  }
  return rows.size() == 1 ? "" : FormatTable(rows);
}

// What one rollout had to do, as far as heartbeats told.
struct LoadSummary {
  int64_t heartbeats = 0, running = 0, waiting = 0, queued = 0, preemptions = 0;
  double kv_share = 0;
};

// A row per rollout: the most that any heartbeat told.
std::string LoadTable(const v1::StepRecord& step) {
  std::map<int, LoadSummary> rollouts;
  for (const v1::LoadRecord& record : step.load()) {
    const v1::GenerationLoad& load = record.load();
    LoadSummary& most = rollouts[record.rank()];
    ++most.heartbeats;
    most.running = std::max(most.running, load.running());
    most.waiting = std::max(most.waiting, load.waiting());
    most.queued = std::max(most.queued, load.queued());
    most.preemptions = std::max(most.preemptions, load.preemptions());
    if (load.kv_blocks() == 0) continue;
    most.kv_share = std::max(most.kv_share, static_cast<double>(load.kv_blocks_used()) /
                                                static_cast<double>(load.kv_blocks()));
  }
  std::vector<std::vector<std::string>> rows = {{"most of rollout", "heartbeats", "queue",
                                                 "running", "waiting", "KV used",
                                                 "preempted so far"}};
  for (const auto& [rank, most] : rollouts) {
    rows.push_back({std::to_string(rank), Count(most.heartbeats), Count(most.queued),
                    Count(most.running), Count(most.waiting),
                    fmt::format("{:.0f} %", 100 * most.kv_share), Count(most.preemptions)});
  }
  return rows.size() == 1 ? "" : FormatTable(rows);
}

}  // namespace

std::string StepDetailsText(const v1::StepRecord& step) {
  const std::string text =
      HistogramTable(step) + UpdateTable(step) + SyncTable(step) + LoadTable(step);
  if (!text.empty()) return text;
  return fmt::format(
      "step {} has no distributions and no updates: a build before schema version 6 of run.db "
      "recorded it\n",
      step.step());
}

std::string StepsText(const v1::ListStepsResponse& steps, bool undone) {
  return undone && steps.steps_size() == 0 ? "no step was undone\n" : StepsTable(steps);
}

std::string MetricsTable(const v1::ListStepsResponse& steps,
                         const std::vector<std::string>& metrics) {
  std::vector<std::vector<std::string>> rows = {{"step"}};
  rows[0].insert(rows[0].end(), metrics.begin(), metrics.end());
  for (const v1::StepRecord& step : steps.steps()) {
    rows.push_back({std::to_string(step.step())});
    for (const std::string& name : metrics) rows.back().push_back(Metric(step, name.c_str()));
  }
  return FormatTable(rows);
}

namespace {

// "8 groups: 5 mixed, 2 all right, 1 all wrong"; "" where none are recorded.
std::string GroupsText(const v1::ListSamplesResponse& samples) {
  if (samples.groups_size() == 0) return "";
  std::vector<std::string> parts;
  for (const char* kind : kGroupKindNames) {
    const auto count = std::count_if(samples.groups().begin(), samples.groups().end(),
                                     [kind](const auto& group) { return group.kind() == kind; });
    std::string name = kind;
    std::replace(name.begin(), name.end(), '_', ' ');
    if (count > 0) parts.push_back(fmt::format("{} {}", count, name));
  }
  return fmt::format("{} groups: {}\n", samples.groups_size(), fmt::join(parts, ", "));
}

}  // namespace

namespace {

std::string Maybe(bool known, double value) {
  return known ? fmt::format("{:.3g}", value) : std::string("-");
}

// What builds before schema version 6 did not record.
std::vector<std::string> TokenFacts(const v1::SampleRecord& sample) {
  return {std::to_string(sample.prompt_tokens()),
          Maybe(sample.has_min_log_prob(), sample.min_log_prob()),
          Maybe(sample.has_repetition(), sample.repetition()), std::to_string(sample.prompt_id())};
}

}  // namespace

std::string SamplesTable(const v1::ListSamplesResponse& samples, size_t width) {
  std::vector<std::vector<std::string>> rows = {
      {"prompt", "response", "truth", "reward", "advantage", "tokens", "end", "version"}};
  const bool facts = std::any_of(samples.samples().begin(), samples.samples().end(),
                                 [](const auto& sample) { return sample.prompt_id() != 0; });
  const bool steps =
      samples.samples_size() > 0 && samples.samples(0).step() != samples.samples().rbegin()->step();
  if (facts) {
    for (const char* name : {"prompt tokens", "least log-prob", "repeated", "prompt id"}) {
      rows[0].emplace_back(name);
    }
  }
  if (steps) rows[0].emplace_back("step");
  bool dropped = false;
  for (const v1::SampleRecord& sample : samples.samples()) {
    dropped = dropped || sample.texts_dropped();
    rows.push_back(
        {SampleText(sample, sample.prompt(), width),
         sample.evicted() ? "-" : SampleText(sample, sample.response(), width),
         SampleText(sample, sample.ground_truth(), width), fmt::format("{:.3g}", sample.reward()),
         fmt::format("{:.3g}", sample.advantage()), std::to_string(sample.response_tokens()),
         sample.evicted() ? "evicted" : FinishText(sample.finish_reason()),
         SampleVersionsText(sample)});
    if (facts) {
      for (std::string& fact : TokenFacts(sample)) rows.back().push_back(std::move(fact));
    }
    if (steps) rows.back().push_back(std::to_string(sample.step()));
  }
  return FormatTable(rows) + GroupsText(samples) +
         fmt::format("{} of {} samples{}\n", samples.samples_size(), samples.total(),
                     dropped ? "; the run keeps texts of its newest steps only "
                               "(trainer.steps_with_texts)"
                             : "");
}

std::string EvaluationTable(const v1::EvaluateResponse& evaluation) {
  std::vector<std::vector<std::string>> rows = {{"metric", "value"}};
  for (const auto& [name, value] : evaluation.metrics()) {
    rows.push_back({name, fmt::format("{:.4g}", value)});
  }
  std::sort(rows.begin() + 1, rows.end());
  return fmt::format("{} prompts, weight version {}\n", evaluation.prompts(),
                     evaluation.version()) +
         FormatTable(rows);
}

std::string CheckTable(const v1::CheckResponse& check) {
  std::string text;
  for (const v1::WorkerCheck& worker : check.workers()) {
    text += fmt::format(
        "rollout {}, version {}: {} of {} tensors checked, {} missing, {} unexpected, {} "
        "mismatched\n",
        worker.rank(), worker.version(), worker.checked(), worker.expected(), worker.missing(),
        worker.unexpected(), worker.mismatched());
    if (!worker.first_difference().empty()) text += "  first: " + worker.first_difference() + "\n";
    for (const std::string& name : worker.differing()) text += "  differs: " + name + "\n";
  }
  return text + fmt::format("{}: {} checked, {} missing, {} unexpected, {} mismatched\n",
                            check.ok() ? "weights agree" : "WEIGHTS DIFFER", check.checked(),
                            check.missing(), check.unexpected(), check.mismatched());
}

std::string ToJsonText(const google::protobuf::Message& message) {
  return MessageJson(message) + "\n";
}

void PrintAnswer(std::ostream& out,
                 bool json,
                 const google::protobuf::Message& answer,
                 const std::string& text) {
  out << (json ? ToJsonText(answer) : Printable(text)) << std::flush;
}

}  // namespace tandem
