#include "controller/cli/steps_command.h"

#include "common/base/status.h"
#include "controller/cli/print_tables.h"
#include "controller/store/sqlite/run_reader.h"
#include "tandem/v1/controller.pb.h"

namespace tandem {
namespace {

v1::StepRecord ToProto(const StepRecord& record) {
  v1::StepRecord proto;
  proto.set_step(record.step);
  proto.set_version(record.version);
  proto.mutable_metrics()->insert(record.metrics.begin(), record.metrics.end());
  for (const PhaseTime& phase : record.phases) {
    v1::PhaseTime* const out = proto.add_phases();
    out->set_phase(phase.phase);
    out->set_seconds(phase.seconds);
    out->set_peak_bytes(phase.peak_bytes);
  }
  proto.set_finished_at(record.finished_at);
  proto.set_undone_by(record.undone_by);
  return proto;
}

}  // namespace

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
  out << (options.json ? ToJsonText(all) : StepsText(all, options.undone));
  return absl::OkStatus();
}

}  // namespace tandem
