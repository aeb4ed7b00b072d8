#include "controller/assembly/train_assembly.h"

#include <iterator>
#include <string>
#include <utility>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/status.h"
#include "controller/assembly/carried_groups.h"
#include "controller/assembly/input_digests.h"
#include "controller/assembly/run_assembly.h"
#include "controller/assembly/run_core.h"
#include "controller/assembly/run_inputs.h"
#include "controller/assembly/run_options.h"
#include "controller/assembly/run_outputs.h"
#include "controller/generation/generation_mode.h"
#include "controller/generation/overlapped_rounds.h"
#include "controller/generation/round_generation.h"
#include "controller/generation/whole_generation.h"
#include "controller/plan/disk_plan.h"
#include "controller/run/resume_point.h"
#include "controller/run/train_loop.h"
#include "controller/store/checkpoint_index.h"
#include "controller/store/sqlite_run_store.h"
#include "controller/store/trackers.h"
#include "tandem/v1/config.pb.h"

namespace tandem {
namespace {

class TrainAssembly final : public Assembly {
 public:
  // `round_runner` is null where partial rollout is off.
  TrainAssembly(std::unique_ptr<RunCore> core,
                std::unique_ptr<RoundRunner> round_runner,
                ResumePoint start)
      : core_(std::move(core)), round_runner_(std::move(round_runner)), start_(std::move(start)) {}

  absl::Status Run() override;
  FailedAt failed_at() const override { return failed_at_; }
  void StopNow() override { core_->control().StopNow(); }

 private:
  std::unique_ptr<GenerationMode> MakeGeneration(const StepContext& context);
  RunInfo MakeRunInfo() const;
  absl::Status TrainAndRecord(TrainLoop& loop, const StepContext& context);

  const std::unique_ptr<RunCore> core_;
  std::unique_ptr<RoundRunner> round_runner_;  // moves into the generation mode
  const ResumePoint start_;
  FailedAt failed_at_ = FailedAt::kRun;
};

std::unique_ptr<GenerationMode> TrainAssembly::MakeGeneration(const StepContext& context) {
  const TrainOptions& options = core_->options();
  if (!options.partial.enabled) return std::make_unique<WholeGeneration>(context, options);
  if (options.partial.overlap) {
    return std::make_unique<OverlappedRounds>(context, options, std::move(round_runner_));
  }
  return std::make_unique<RoundGeneration>(context, options, std::move(round_runner_));
}

RunInfo TrainAssembly::MakeRunInfo() const {
  const v1::Config& config = core_->config();
  const TrainOptions& options = core_->options();
  return {
      .run_id = core_->run_id(),
      .run_dir = options.run_dir,
      .started_at = absl::FormatTime(absl::RFC3339_sec, RealClock().WallNow(), absl::UTCTimeZone()),
      .build = core_->registry().builds(),
      .config_yaml = options.config_yaml,
      .memory_plan = core_->memory_plan(),
      .total_steps = options.total_steps,
      .first_step = start_.step,
      .expected_val_rise = config.trainer().expected_val_rise(),
      .max_response_tokens = config.data().max_response_length()};
}

absl::Status TrainAssembly::TrainAndRecord(TrainLoop& loop, const StepContext& context) {
  RunRecorder recorder(context.store, context.progress, MakeRunInfo());
  absl::Status status = recorder.Begin();
  core_->TellStart(start_);
  if (status.ok()) status = loop.Run(start_.checkpoint);
  if (loop.failed_loading()) failed_at_ = FailedAt::kInputs;
  core_->control().OnEnded(status);
  const bool completed = status.ok() && loop.complete();
  const WorkerRegistry& registry = core_->registry();
  const absl::Status reported = recorder.End(status,
                                             {.completed = completed,
                                              .steps = loop.position().finished_steps,
                                              .total_steps = loop.total_steps(),
                                              .restarts = context.budget.spent(),
                                              .checkpoint = loop.newest_checkpoint()},
                                             {.builds = registry.builds(),
                                              .numerics_class = registry.numerics_class(),
                                              .kernel_sets = registry.kernel_sets()});
  if (completed && reported.ok()) {
    // Written last, so that after a kill before it the next start completes the run.
    status = context.disk.Until(
        {.what = "the mark of a finished run", .folder = context.checkpoints.dir()},
        [&] { return context.checkpoints.MarkFinished(loop.position().finished_steps); });
  }
  return status;
}

absl::Status TrainAssembly::Run() {
  TANDEM_RETURN_IF_ERROR(core_->PlanAhead());
  if (!core_->config().rollout().calculate_log_probs()) {
    LogWarn(
        "rollout.calculate_log_probs is false: rollouts return no log-probs, so those of rollout "
        "and trainer are not compared in this run; the trainers compute the old log-probs "
        "themselves");
  }
  const std::unique_ptr<Tracker> tracker = MakeTrackers(core_->config(), RealClock());
  const StepContext context = core_->MakeContext(*tracker);
  RunModes modes{.generation = MakeGeneration(context), .placement = core_->placement()};
  TrainLoop loop(context, core_->options(), std::move(modes), core_->control());
  return core_->Serve(context, loop.position(), [&] { return TrainAndRecord(loop, context); });
}

}  // namespace

absl::StatusOr<std::unique_ptr<Assembly>> MakeTrainAssembly(const AssemblyOptions& options) {
  const v1::Config& config = options.config;
  TANDEM_ASSIGN_OR_RETURN(RunInputs inputs, LoadRunInputs(config));
  TANDEM_ASSIGN_OR_RETURN(std::unique_ptr<RunStore> records,
                          SqliteRunStore::Open(config.cluster().run_dir() + "/run.db"));
  TANDEM_ASSIGN_OR_RETURN(std::unique_ptr<SampleStore> samples, OpenSamples(config));
  TANDEM_ASSIGN_OR_RETURN(CheckpointIndex checkpoints,
                          CheckpointIndex::Open(config.trainer().default_local_dir(),
                                                config.trainer().max_actor_ckpt_to_keep()));
  TANDEM_ASSIGN_OR_RETURN(TrainOptions train, CheckedTrainOptions(config, inputs));
  TANDEM_ASSIGN_OR_RETURN(train.inputs, PinInputs(config, inputs, RememberDigests::kYes));
  TANDEM_ASSIGN_OR_RETURN(
      ResumePoint start,
      ChooseResumePoint(config, MakeResumeOptions(config, train, inputs, options.launch_id),
                        checkpoints));
  TANDEM_ASSIGN_OR_RETURN(const DiskPlan disks, PlanDisk(inputs.spec, config, train.total_steps,
                                                         std::ssize(checkpoints.List())));
  for (const std::string& line : DiskPlanText(disks)) LogInfo("{}", line);
  TANDEM_RETURN_IF_ERROR(CheckDiskPlan(disks));
  train.expected_checkpoint_bytes = disks.checkpoint_bytes;
  std::unique_ptr<RoundRunner> round_runner;
  if (train.partial.enabled) {
    TANDEM_ASSIGN_OR_RETURN(round_runner, OpenRoundRunner(config, train, inputs, start));
  }
  auto core = std::make_unique<RunCore>(options, std::move(inputs), std::move(train),
                                        RunStores{.records = std::move(records),
                                                  .samples = std::move(samples),
                                                  .checkpoints = std::move(checkpoints)},
                                        MakeCheckPolicy(config.weight_sync()));
  return std::make_unique<TrainAssembly>(std::move(core), std::move(round_runner),
                                         std::move(start));
}

}  // namespace tandem
