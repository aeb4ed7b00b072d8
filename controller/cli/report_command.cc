#include "controller/cli/report_command.h"

#include <optional>

#include <fmt/format.h>

#include "common/base/status.h"
#include "common/formats/files.h"
#include "controller/cli/unsaved_steps.h"
#include "controller/report/run_report.h"
#include "controller/store/sqlite/run_reader.h"

namespace tandem {

absl::Status ReportCommand(const ReportOptions& options, std::ostream& out) {
  if (options.run_dir.empty()) {
    return InvalidArgument("name the run with --run-dir: its report is made from RUN_DIR/run.db");
  }
  TANDEM_ASSIGN_OR_RETURN(const auto records, SqliteRunReader::Open(options.run_dir + "/run.db"));
  TANDEM_ASSIGN_OR_RETURN(const RunInfo info, records->NewestRun());
  TANDEM_ASSIGN_OR_RETURN(const RunFigures figures, GatherFigures(*records));
  const std::string unsaved =
      UnsavedStepsText(options.run_dir, *records, figures.first_step, figures.last_step);
  TANDEM_ASSIGN_OR_RETURN(
      const std::string html,
      MakeRunReport(*records, info, /*summary=*/std::nullopt, figures, unsaved));
  const std::string file = options.html.empty() ? options.run_dir + "/report.html" : options.html;
  TANDEM_RETURN_IF_ERROR(WriteFileAtomically(file, html));
  out << fmt::format("{}: {} steps of {}\n", file, figures.steps, info.run_id);
  if (!unsaved.empty()) out << unsaved << "\n";
  return absl::OkStatus();
}

}  // namespace tandem
