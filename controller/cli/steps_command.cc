#include "controller/cli/steps_command.h"

#include "common/base/status.h"
#include "controller/cli/print_tables.h"
#include "controller/cli/unsaved_steps.h"
#include "controller/store/sqlite/run_reader.h"
#include "controller/wire/record_codec.h"
#include "tandem/v1/controller.pb.h"

namespace tandem {
absl::Status StepsOfRun(const std::string& run_dir,
                        const StepsOptions& options,
                        std::ostream& out) {
  TANDEM_ASSIGN_OR_RETURN(const auto records, SqliteRunReader::Open(run_dir + "/run.db"));
  TANDEM_ASSIGN_OR_RETURN(const std::vector<StepRecord> steps,
                          records->ListSteps({.first_step = options.first_step,
                                              .last_step = options.last_step,
                                              .undone = options.undone,
                                              .workers = false}));
  v1::ListStepsResponse all;
  for (const StepRecord& step : steps) *all.add_steps() = ToProto(step);
  if (options.json) {
    out << ToJsonText(all);
    return absl::OkStatus();
  }
  out << StepsText(all, options.undone);
  if (options.undone || steps.empty()) return absl::OkStatus();
  const std::string unsaved =
      UnsavedStepsText(run_dir, *records, steps.front().step, steps.back().step);
  if (!unsaved.empty()) out << unsaved << "\n";
  return absl::OkStatus();
}

}  // namespace tandem
