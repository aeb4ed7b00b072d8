#include "controller/cli/report_command.h"

#include <optional>

#include <fmt/format.h>

#include "common/base/status.h"
#include "common/formats/files.h"
#include "controller/report/run_report.h"
#include "controller/store/post_mortem/run_state.h"
#include "controller/store/sqlite/run_reader.h"
#include "controller/store/time_stamp.h"
#include "controller/view/unsaved_steps.h"

namespace tandem {

namespace {

// What the records do not say of the run's end, and which steps no checkpoint has.
std::string ReportNote(const RunDirState& state, const std::string& unsaved) {
  std::string note;
  if (state.info && state.info->outcome == RunOutcome::kNone) {
    note = fmt::format("The run is {}{}, as of {}. ", state.state,
                       state.phase.empty()
                           ? ""
                           : fmt::format(" in phase {} of step {}", state.phase, state.phase_step),
                       StampText(state.newest_us));
  }
  return note + unsaved;
}

}  // namespace

absl::Status ReportCommand(const ReportOptions& options, std::ostream& out) {
  if (options.run_dir.empty()) {
    return InvalidArgument(
        "name the run, as in tandemctl report RUN_DIR: its report is made from RUN_DIR/run.db");
  }
  if (options.json) {
    return InvalidArgument(
        "a report is a page, and there is none as JSON: leave --json out, or use it with tandemctl "
        "status, steps, samples or memory, which also read {}",
        options.run_dir);
  }
  TANDEM_ASSIGN_OR_RETURN(const auto records, SqliteRunReader::Open(options.run_dir + "/run.db"));
  TANDEM_ASSIGN_OR_RETURN(const RunInfo info, records->NewestRun());
  TANDEM_ASSIGN_OR_RETURN(const RunFigures figures, GatherFigures(*records));
  TANDEM_ASSIGN_OR_RETURN(const RunDirState state, ReadRunDirState(options.run_dir, records.get()));
  const std::string unsaved =
      UnsavedStepsText(options.run_dir, *records, figures.first_step, figures.last_step);
  TANDEM_ASSIGN_OR_RETURN(
      const std::string html,
      MakeRunReport(*records, info, /*summary=*/std::nullopt, figures, ReportNote(state, unsaved)));
  const std::string file = options.html.empty() ? options.run_dir + "/report.html" : options.html;
  TANDEM_RETURN_IF_ERROR(WriteFileAtomically(file, html));
  out << fmt::format("{}: {} steps of {}\n", file, figures.steps, info.run_id);
  if (!unsaved.empty()) out << unsaved << "\n";
  return absl::OkStatus();
}

}  // namespace tandem
