#include "controller/assembly/check_assembly.h"

#include <string>
#include <utility>

#include "common/base/clock.h"
#include "common/base/status.h"
#include "controller/assembly/run_assembly.h"
#include "controller/assembly/run_core.h"
#include "controller/assembly/run_inputs.h"
#include "controller/assembly/run_options.h"
#include "controller/assembly/run_outputs.h"
#include "controller/run/check_only.h"
#include "controller/run/recovery.h"
#include "controller/run/resume_point.h"
#include "controller/store/checkpoint_index.h"
#include "controller/store/sqlite/sqlite_run_store.h"
#include "controller/store/trackers/trackers.h"
#include "tandem/v1/config.pb.h"

namespace tandem {
namespace {

class CheckAssembly final : public Assembly {
 public:
  CheckAssembly(std::unique_ptr<RunCore> core, ResumePoint start)
      : core_(std::move(core)), start_(std::move(start)) {}

  absl::Status Run() override {
    TANDEM_RETURN_IF_ERROR(core_->PlanAhead());
    FanoutTracker no_metrics({});
    const StepContext context = core_->MakeContext(no_metrics);
    // A check has no steps between which users' calls could read the position.
    const RunPosition position;
    return core_->Serve(context, position, [&] { return CheckAndReport(context); });
  }
  FailedAt failed_at() const override { return failed_at_; }
  void StopNow() override { core_->control().StopNow(); }

 private:
  absl::Status CheckAndReport(const StepContext& context) {
    core_->TellStart(start_);
    const TrainOptions& options = core_->options();
    Recovery recovery(context, options);
    const absl::Status checked =
        CheckOnly(context, recovery, start_.checkpoint, options.run_dir + "/" + kCheckReport);
    const absl::Status status = ReasonOfEnd(core_->control(), checked);
    if (recovery.failed_loading() && status == checked) failed_at_ = FailedAt::kInputs;
    core_->control().OnEnded(status);
    return status;
  }

  const std::unique_ptr<RunCore> core_;
  const ResumePoint start_;
  FailedAt failed_at_ = FailedAt::kRun;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Assembly>> MakeCheckAssembly(const AssemblyOptions& options) {
  const v1::Config& config = options.config;
  TANDEM_ASSIGN_OR_RETURN(RunInputs inputs, LoadRunInputs(config));
  RunStores stores{.checkpoints =
                       CheckpointIndex::OpenReadOnly(config.trainer().default_local_dir())};
  TANDEM_ASSIGN_OR_RETURN(stores.records, SqliteRunStore::Open(":memory:"));
  TANDEM_ASSIGN_OR_RETURN(stores.samples, OpenSamples(config));
  TANDEM_ASSIGN_OR_RETURN(TrainOptions train, CheckedTrainOptions(config, inputs));
  TANDEM_ASSIGN_OR_RETURN(ResumePoint start, PeekResumePoint(config, stores.checkpoints));
  // The sync itself is not checked, as the check follows it.
  auto core = std::make_unique<RunCore>(options, MakeRunId(config, RealClock().WallNow()),
                                        std::move(inputs), std::move(train), std::move(stores),
                                        CheckPolicy{.when = CheckPolicy::When::kOff});
  return std::make_unique<CheckAssembly>(std::move(core), std::move(start));
}

}  // namespace tandem
