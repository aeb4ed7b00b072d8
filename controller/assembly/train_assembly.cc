#include "controller/assembly/train_assembly.h"

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
#include "controller/assembly/run_takeover.h"
#include "controller/generation/generation_mode.h"
#include "controller/generation/one_step_off.h"
#include "controller/generation/overlapped_rounds.h"
#include "controller/generation/round_generation.h"
#include "controller/generation/whole_generation.h"
#include "controller/plan/disk_plan.h"
#include "controller/run/resume_point.h"
#include "controller/run/train_loop.h"
#include "controller/store/checkpoint_index.h"
#include "controller/store/post_mortem/blackbox.h"
#include "controller/store/sqlite/sqlite_run_store.h"
#include "controller/store/trackers/trackers.h"
#include "controller/web/dashboard_server.h"
#include "tandem/v1/config.pb.h"

namespace tandem {
namespace {

class TrainAssembly final : public Assembly {
 public:
  // `rounds` is empty where partial rollout is off. `records` are the core's.
  TrainAssembly(std::unique_ptr<RunCore> core,
                SqliteRunStore& records,
                OpenedRounds rounds,
                ResumePoint start,
                std::string launch_id)
      : core_(std::move(core)),
        records_(records),
        rounds_(std::move(rounds)),
        start_(std::move(start)),
        launch_id_(std::move(launch_id)) {}

  absl::Status Run() override;
  FailedAt failed_at() const override { return failed_at_; }
  void StopNow() override { core_->control().StopNow(); }

 private:
  std::unique_ptr<GenerationMode> MakeGeneration(const StepContext& context);
  RunInfo MakeRunInfo() const;
  absl::Status TakeOver(const StepContext& context);
  absl::Status TrainAndRecord(TrainLoop& loop, const StepContext& context);

  const std::unique_ptr<RunCore> core_;
  SqliteRunStore& records_;
  FanoutTracker tracker_{std::vector<std::unique_ptr<Tracker>>()};
  OpenedRounds rounds_;  // its runner moves into the generation mode
  const ResumePoint start_;
  const std::string launch_id_;
  FailedAt failed_at_ = FailedAt::kRun;
  bool completed_ = false;
};

std::unique_ptr<GenerationMode> TrainAssembly::MakeGeneration(const StepContext& context) {
  const TrainOptions& options = core_->options();
  if (!options.partial.enabled) return std::make_unique<WholeGeneration>(context, options);
  if (options.partial.one_step_off) {
    return std::make_unique<OneStepOff>(context, options, std::move(rounds_.runner));
  }
  if (options.partial.overlap) {
    return std::make_unique<OverlappedRounds>(context, options, std::move(rounds_.runner));
  }
  return std::make_unique<RoundGeneration>(context, options, std::move(rounds_.runner));
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

absl::Status TrainAssembly::TakeOver(const StepContext& context) {
  return TakeOverRunDir({.config = core_->config(),
                         .start = start_,
                         .launch_id = launch_id_,
                         .records = records_,
                         .checkpoints = context.checkpoints,
                         .tracker = tracker_,
                         .journal = rounds_.journal,
                         .progress = context.progress,
                         .disk = context.disk,
                         .log_json = core_->log_json()});
}

absl::Status TrainAssembly::TrainAndRecord(TrainLoop& loop, const StepContext& context) {
  RunRecorder recorder(context.store, context.progress, MakeRunInfo());
  recorder.Begin();
  core_->TellStart(start_);
  absl::Status status = loop.Run(start_.checkpoint, [&]() -> absl::Status {
    TANDEM_RETURN_IF_ERROR(TakeOver(context));
    TANDEM_RETURN_IF_ERROR(recorder.Record());
    core_->events().StartWriting();
    return absl::OkStatus();
  });
  if (loop.failed_loading()) failed_at_ = FailedAt::kInputs;
  if (const absl::Status reason = ReasonOfEnd(core_->control(), status); reason != status) {
    status = reason;
    failed_at_ = FailedAt::kRun;
  }
  completed_ = status.ok() && loop.complete();
  // Before the report: a run that has made everything but its report is finished.
  if (completed_) {
    status = context.disk.Until(
        {.what = "the mark of a finished run", .folder = context.checkpoints.dir()},
        [&] { return context.checkpoints.MarkFinished(loop.position().finished_steps); });
  }
  core_->control().OnEnded(status);
  const WorkerRegistry& registry = core_->registry();
  recorder.End(status,
               {.completed = completed_ && status.ok(),
                .steps = loop.position().finished_steps,
                .total_steps = loop.total_steps(),
                .restarts = context.budget.spent(),
                .checkpoint = loop.newest_checkpoint()},
               {.builds = registry.builds(),
                .numerics_class = registry.numerics_class(),
                .kernel_sets = registry.kernel_sets()});
  return status;
}

// Null where the configuration wants none.
absl::StatusOr<std::unique_ptr<DashboardServer>> StartDashboard(const v1::Config& config) {
  if (config.ui().listen() == "off") return nullptr;
  const std::string& run_dir = config.cluster().run_dir();
  return DashboardServer::Start({run_dir}, config.ui().listen(), run_dir + "/ui.token",
                                RealClock());
}

absl::Status TrainAssembly::Run() {
  TANDEM_RETURN_IF_ERROR(core_->PlanAhead());
  if (!core_->config().rollout().calculate_log_probs()) {
    LogWarn(
        "rollout.calculate_log_probs is false: rollouts return no log-probs, so those of rollout "
        "and trainer are not compared in this run; the trainers compute the old log-probs "
        "themselves");
  }
  TANDEM_ASSIGN_OR_RETURN(const auto dashboard, StartDashboard(core_->config()));
  const StepContext context = core_->MakeContext(tracker_);
  if (dashboard != nullptr) {
    context.progress.OnEvent(
        {.kind = "dashboard", .text = "dashboard: " + dashboard->Address(), .recorded = false});
  }
  RunModes modes{.generation = MakeGeneration(context), .placement = core_->placement()};
  TrainLoop loop(context, core_->options(), std::move(modes), core_->control());
  return core_->Serve(context, loop.position(), [&] { return TrainAndRecord(loop, context); });
}

// Null where it cannot be kept: a run does not end for that.
std::shared_ptr<Blackbox> OpenBlackbox(const v1::Config& config, const std::string& run_id) {
  auto box = Blackbox::Open(config.cluster().run_dir() + "/blackbox", run_id, RealClock());
  if (box.ok()) return *std::move(box);
  LogWarn("no blackbox is kept of what the controller does: {}",
          std::string(box.status().message()));
  return nullptr;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Assembly>> MakeTrainAssembly(const AssemblyOptions& options) {
  const v1::Config& config = options.config;
  TANDEM_ASSIGN_OR_RETURN(RunInputs inputs, LoadRunInputs(config));
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
                                                         StayingCheckpoints(start, checkpoints)));
  for (const DiskLine& line : DiskPlanText(disks)) {
    if (line.fits) {
      LogInfo("{}", line.text);
    } else {
      start.warnings.push_back(line.text);  // which are logged, and told to the user
    }
  }
  TANDEM_RETURN_IF_ERROR(CheckDiskPlan(disks));
  train.expected_checkpoint_bytes = disks.checkpoint_bytes;
  // An earlier run's records are not even opened before they are moved.
  const bool anew = start.set_aside == SetAside::kWholeRun;
  TANDEM_ASSIGN_OR_RETURN(std::unique_ptr<SqliteRunStore> records,
                          SqliteRunStore::Open(anew ? ":memory:" : RecordsPath(config),
                                               config.trainer().steps_with_texts()));
  SqliteRunStore& store = *records;
  OpenedRounds rounds;
  if (train.partial.enabled) {
    TANDEM_ASSIGN_OR_RETURN(rounds, OpenRounds(config, train, inputs, start));
  }
  std::unique_ptr<SampleStore> upcoming;
  if (train.partial.one_step_off) {
    TANDEM_ASSIGN_OR_RETURN(upcoming, OpenUpcomingSamples(config));
  }
  std::string run_id = MakeRunId(config, RealClock().WallNow());
  auto blackbox = OpenBlackbox(config, run_id);
  auto core =
      std::make_unique<RunCore>(options, std::move(run_id), std::move(inputs), std::move(train),
                                RunStores{.records = std::move(records),
                                          .samples = std::move(samples),
                                          .checkpoints = std::move(checkpoints),
                                          .upcoming = std::move(upcoming),
                                          .blackbox = std::move(blackbox)},
                                MakeCheckPolicy(config.weight_sync()));
  return std::make_unique<TrainAssembly>(std::move(core), store, std::move(rounds),
                                         std::move(start), options.launch_id);
}

}  // namespace tandem
