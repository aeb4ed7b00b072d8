#include "controller/assembly/run_outputs.h"

#include <iostream>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <unistd.h>

#include "common/base/log.h"
#include "common/base/status.h"
#include "common/formats/files.h"
#include "controller/report/console_progress.h"
#include "controller/report/json_progress.h"
#include "controller/report/run_figures.h"
#include "controller/report/run_report.h"
#include "controller/store/post_mortem/event_log.h"
#include "controller/store/trackers/tensorboard_tracker.h"
#include "controller/store/trackers/trackers.h"
#include "tandem/v1/config.pb.h"

namespace tandem {
namespace {

std::string ReportPath(const RunInfo& info) { return info.run_dir + "/report.html"; }

}  // namespace

std::unique_ptr<ProgressSink> MakeShownProgress(const v1::Config& config, bool json) {
  if (json) return std::make_unique<JsonProgress>(stdout, RealClock());
  return std::make_unique<ConsoleProgress>(
      ConsoleOptions{.terminal = isatty(STDOUT_FILENO) != 0,
                     .console_freq = config.trainer().console_freq(),
                     .log_samples = config.trainer().log_samples(),
                     .log_phases = config.trainer().log_phases()});
}

std::vector<std::unique_ptr<Tracker>> MakeTrackers(const v1::Config& config,
                                                   bool json,
                                                   Clock& clock) {
  const std::string& run_dir = config.cluster().run_dir();
  std::vector<std::unique_ptr<Tracker>> trackers;
  for (const std::string& name : config.trainer().logger()) {
    if (name == "jsonl") {
      trackers.push_back(std::make_unique<JsonlTracker>(run_dir + "/metrics.jsonl"));
    } else if (name == "tensorboard") {
      trackers.push_back(std::make_unique<TensorBoardTracker>(run_dir + "/tensorboard", clock));
    } else if (name == "console" && !json && isatty(STDOUT_FILENO) == 0) {
      trackers.push_back(std::make_unique<ConsoleTracker>(std::cout));
    }
  }
  return trackers;
}

std::string MakeRunId(const v1::Config& config, absl::Time now) {
  return fmt::format("{}/{}/{}", config.trainer().project_name(),
                     config.trainer().experiment_name(),
                     absl::FormatTime("%Y%m%d-%H%M%S", now, absl::UTCTimeZone()));
}

RunRecorder::RunRecorder(RunStore& store, ProgressSink& progress, RunInfo info)
    : store_(store), progress_(progress), info_(std::move(info)), started_(RealClock().Now()) {}

void RunRecorder::Begin() { progress_.OnRunStart(info_); }

absl::Status RunRecorder::Record() {
  TANDEM_RETURN_IF_ERROR(store_.RecordRun(info_));
  recorded_ = true;
  return absl::OkStatus();
}

absl::Status RunRecorder::WriteEnd(RunSummary& summary, RunFigures& figures) {
  TANDEM_RETURN_IF_ERROR(store_.RecordRun(info_));
  TANDEM_ASSIGN_OR_RETURN(figures, GatherFigures(store_));
  TANDEM_ASSIGN_OR_RETURN(const std::string html, MakeRunReport(store_, info_, summary, figures));
  TANDEM_RETURN_IF_ERROR(WriteFileAtomically(ReportPath(info_), html));
  summary.report = ReportPath(info_);
  return absl::OkStatus();
}

void RunRecorder::End(const absl::Status& status,
                      RunSummary summary,
                      const RunMachinery& machinery) {
  info_.build = machinery.builds;
  info_.numerics_class = machinery.numerics_class;
  info_.kernel_sets = machinery.kernel_sets;
  info_ = Shortened(info_, summary.total_steps);
  if (!status.ok()) summary.error = std::string(status.message());
  info_.outcome = OutcomeOf(summary);
  info_.error = summary.error;
  info_.ended_at = absl::FormatTime(absl::RFC3339_sec, RealClock().WallNow(), absl::UTCTimeZone());
  summary.seconds = absl::ToDoubleSeconds(RealClock().Now() - started_);
  RunFigures figures;
  if (recorded_) {
    const absl::Status written = WriteEnd(summary, figures);
    if (!written.ok()) {
      const std::string text = fmt::format("no report was written: {}; later: tandemctl report {}",
                                           std::string(written.message()), info_.run_dir);
      LogWarn("{}", text);
      progress_.OnMessage("warning: " + text);
    }
  }
  progress_.OnRunEnd(summary, figures);
}

}  // namespace tandem
