#include "controller/assembly/run_assembly.h"

#include <cerrno>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <fmt/ranges.h>
#include <sys/file.h>
#include <unistd.h>

#include "common/base/log.h"
#include "common/base/status.h"
#include "common/device/device_memory.h"
#include "common/net/channel.h"
#include "common/net/protocol.h"
#include "common/net/server.h"
#include "common/process/cores.h"
#include "common/process/threads.h"
#include "common/text/tokenizer.h"
#include "controller/api/cluster_service.h"
#include "controller/api/tandem_service.h"
#include "controller/assembly/run_inputs.h"
#include "controller/assembly/run_options.h"
#include "controller/assembly/run_outputs.h"
#include "controller/assembly/run_plan.h"
#include "controller/data/chat_codec.h"
#include "controller/data/shuffled_prompts.h"
#include "controller/generation/round_generation.h"
#include "controller/generation/whole_generation.h"
#include "controller/partial_rollout/buffer/resume_check.h"
#include "controller/plan/lora_checks.h"
#include "controller/plan/memory_plan.h"
#include "controller/plan/plan_input.h"
#include "controller/report/console_progress.h"
#include "controller/run/check_only.h"
#include "controller/run/hang_detector.h"
#include "controller/run/resume_point.h"
#include "controller/run/train_loop.h"
#include "controller/store/progress.h"
#include "controller/store/sqlite_run_store.h"
#include "controller/store/trackers.h"
#include "controller/workers/rollout_client.h"
#include "controller/workers/trainer_client.h"
#include "tandem/v1/config.pb.h"

namespace tandem {
namespace {

// The time that a killed predecessor may take to release its memory and exit.
constexpr absl::Duration kLeaveTime = absl::Seconds(5);

// Two controllers in one directory would overwrite each other's files. The kernel releases the lock
// when the process ends, however it ends.
absl::Status LockRunDir(const std::string& run_dir) {
  TANDEM_RETURN_IF_ERROR(Annotate(MakeFolder(run_dir), "cluster.run_dir"));
  const std::string path = run_dir + "/controller.lock";
  const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (fd < 0) {
    return MakeStatus(IoErrorCode(errno), "cannot open {}: {}", path, std::strerror(errno));
  }
  const absl::Time deadline = RealClock().Now() + kLeaveTime;
  bool locked = flock(fd, LOCK_EX | LOCK_NB) == 0;
  while (!locked && RealClock().Now() < deadline) {
    RealClock().Sleep(absl::Milliseconds(50));
    locked = flock(fd, LOCK_EX | LOCK_NB) == 0;
  }
  if (!locked) {
    return MakeStatus(absl::StatusCode::kAlreadyExists,
                      "another controller is at work in {}: stop it, or choose another "
                      "cluster.run_dir",
                      run_dir);
  }
  return absl::OkStatus();
}

v1::RegisterResponse MakeWelcome(const v1::Config& config, const Tokenizer& tokenizer) {
  v1::RegisterResponse welcome;
  *welcome.mutable_config() = config;
  welcome.set_run_dir(config.cluster().run_dir());
  welcome.set_vocab_limit(tokenizer.vocab_size());
  welcome.set_tokenizer_digest(tokenizer.digest());
  welcome.set_compute_threads(ComputeThreads(config));
  for (const int32_t id : tokenizer.eos_token_ids()) welcome.add_stop_token_ids(id);
  return welcome;
}

// In milliseconds, so that a controller that is restarted within a second also begins a new
// generation.
int64_t FirstGeneration() { return absl::ToUnixMillis(RealClock().Now()); }

class RunAssembly final : public Assembly {
 public:
  RunAssembly(const AssemblyOptions& options,
              RunInputs inputs,
              std::unique_ptr<RunStore> store,
              std::unique_ptr<SampleStore> samples,
              CheckpointIndex checkpoints,
              TrainOptions train,
              std::unique_ptr<RoundRunner> round_runner,
              ResumePoint resume)
      : config_(options.config),
        inputs_(std::move(inputs)),
        store_(std::move(store)),
        samples_(std::move(samples)),
        checkpoints_(std::move(checkpoints)),
        options_(std::move(train)),
        round_runner_(std::move(round_runner)),
        resume_(std::move(resume)),
        control_(options_.total_steps, options.start),
        registry_(MakeRegistryOptions(config_, inputs_.tokenizer->digest(), options.build),
                  RealClock()),
        pool_(registry_,
              GrpcClients(config_),
              static_cast<int>(config_.cluster().trainers()),
              RealClock()),
        console_({.terminal = isatty(STDOUT_FILENO) != 0}),
        progress_({&console_}) {}

  absl::Status Run() override;
  FailedAt failed_at() const override { return failed_at_; }
  void StopNow() override { control_.StopNow(); }

 private:
  StepContext MakeContext(Tracker& tracker);
  RunModes MakeModes(const StepContext& context);
  std::unique_ptr<Tracker> MakeTracker() const;
  void ReportResume();
  bool check_only() const { return config_.weight_sync().check_only(); }
  // Makes the memory plan (PlanRun), which also decides how rollouts sleep.
  absl::Status MakePlan(int64_t device_bytes);
  // The work between the start of the run's services and their end: training, or a weight check.
  absl::Status Work(TrainLoop& loop,
                    TandemService& api,
                    const StepContext& context,
                    const std::string& run_id);
  absl::Status TrainAndRecord(TrainLoop& loop, const std::string& run_id);
  absl::Status CheckAndReport(const StepContext& context);

  const v1::Config config_;
  const RunInputs inputs_;
  const std::unique_ptr<RunStore> store_;
  const std::unique_ptr<SampleStore> samples_;
  CheckpointIndex checkpoints_;
  FailedAt failed_at_ = FailedAt::kRun;
  TrainOptions options_;
  std::unique_ptr<RoundRunner> round_runner_;  // null: off, or moved into the run's modes
  std::string memory_plan_;                    // JSON
  const ResumePoint resume_;
  RunControl control_;
  ParityProbe probe_{MakeProbeOptions(config_, inputs_.tokenizer->vocab_size())};
  WorkerRegistry registry_;
  WorkerPool pool_;
  ConsoleProgress console_;
  ProgressRelay progress_;
  RestartBudget budget_{config_.cluster().max_restarts()};
  WeightSync weights_{pool_, MakeWeightReference(config_), MakeCheckPolicy(config_.weight_sync()),
                      MakeScrambleMode(config_.weight_sync())};
  // Two decoding batches in flight keep a rollout busy while the next group is sent.
  RolloutFleet fleet_{pool_,
                      weights_,
                      budget_,
                      progress_,
                      {.max_in_flight_samples = 2 * config_.rollout().max_num_seqs(),
                       .register_timeout = options_.register_timeout,
                       .interrupted = [this] { return control_.stop_now(); }}};
};

StepContext RunAssembly::MakeContext(Tracker& tracker) {
  return {.pool = pool_,
          .weights = weights_,
          .fleet = fleet_,
          .budget = budget_,
          .prompts = *inputs_.prompts,
          .reward = *inputs_.reward,
          .text = *inputs_.codec,
          .samples = *samples_,
          .probe = probe_,
          .store = *store_,
          .tracker = tracker,
          .progress = progress_,
          .checkpoints = checkpoints_,
          .clock = RealClock(),
          .validation = inputs_.validation,
          .interrupted = [this] { return control_.stop_now(); }};
}

RunModes RunAssembly::MakeModes(const StepContext& context) {
  RunModes modes{.placement = std::make_unique<ColocatedPlacement>(context, options_)};
  if (round_runner_ != nullptr) {
    modes.generation =
        std::make_unique<RoundGeneration>(context, options_, std::move(round_runner_));
  } else {
    modes.generation = std::make_unique<WholeGeneration>(context, options_);
  }
  return modes;
}

std::unique_ptr<Tracker> RunAssembly::MakeTracker() const {
  if (!check_only()) return MakeTrackers(config_, RealClock());
  return std::make_unique<FanoutTracker>(std::vector<std::unique_ptr<Tracker>>());
}

// Reports both in the log and to the user.
void RunAssembly::ReportResume() {
  if (!resume_.note.empty()) {
    LogInfo("{}", resume_.note);
    progress_.OnMessage(resume_.note);
  }
  for (const std::string& warning : resume_.warnings) {
    LogWarn("{}", warning);
    progress_.OnMessage("warning: " + warning);
  }
}

absl::Status RunAssembly::CheckAndReport(const StepContext& context) {
  ReportResume();
  Recovery recovery(context, options_, FirstGeneration());
  const absl::Status status =
      CheckOnly(context, recovery, resume_.checkpoint, options_.run_dir + "/" + kCheckReport);
  if (recovery.failed_loading()) failed_at_ = FailedAt::kInputs;
  control_.OnEnded(status);
  return status;
}

absl::Status RunAssembly::TrainAndRecord(TrainLoop& loop, const std::string& run_id) {
  RunInfo info{
      .run_id = run_id,
      .run_dir = options_.run_dir,
      .started_at = absl::FormatTime(absl::RFC3339_sec, RealClock().Now(), absl::UTCTimeZone()),
      .build = registry_.builds(),
      .config_yaml = options_.config_yaml,
      .memory_plan = memory_plan_,
      .total_steps = options_.total_steps,
      .first_step = resume_.step,
      .expected_val_rise = config_.trainer().expected_val_rise(),
      .max_response_tokens = config_.data().max_response_length()};
  RunRecorder recorder(*store_, progress_, std::move(info));
  absl::Status status = recorder.Begin();
  ReportResume();
  if (status.ok()) status = loop.Run(resume_.checkpoint);
  if (loop.failed_loading()) failed_at_ = FailedAt::kInputs;
  control_.OnEnded(status);
  const bool completed = status.ok() && loop.complete();
  const absl::Status reported = recorder.End(status,
                                             {.completed = completed,
                                              .steps = loop.position().finished_steps,
                                              .total_steps = loop.total_steps(),
                                              .restarts = budget_.spent(),
                                              .checkpoint = loop.newest_checkpoint()},
                                             {.builds = registry_.builds(),
                                              .numerics_class = registry_.numerics_class(),
                                              .kernel_sets = registry_.kernel_sets()});
  if (completed && reported.ok()) {
    // Written last, so that after a kill before it the next start completes the run.
    status = checkpoints_.MarkFinished(loop.position().finished_steps);
  }
  return status;
}

absl::Status RunAssembly::MakePlan(int64_t device_bytes) {
  TANDEM_ASSIGN_OR_RETURN(const MemoryPlan plan, PlanRun(inputs_.spec, config_, device_bytes,
                                                         options_.run_dir, progress_));
  options_.sleep = SleepModeOf(plan);
  memory_plan_ = MemoryPlanToJson(plan);
  return absl::OkStatus();
}

absl::Status RunAssembly::Work(TrainLoop& loop,
                               TandemService& api,
                               const StepContext& context,
                               const std::string& run_id) {
  if (PlansForGpu(config_)) {
    const absl::StatusOr<int64_t> bytes = AwaitGpuBytes(pool_, registry_, options_.register_timeout,
                                                        [this] { return control_.stop_now(); });
    const absl::Status planned = bytes.ok() ? MakePlan(*bytes) : bytes.status();
    if (!planned.ok()) {
      control_.OnEnded(planned);
      return planned;
    }
    api.SetMemoryPlan(memory_plan_);
  }
  return check_only() ? CheckAndReport(context) : TrainAndRecord(loop, run_id);
}

absl::Status RunAssembly::Run() {
  if (!PlansForGpu(config_)) {
    TANDEM_RETURN_IF_ERROR(MakePlan(CpuDeviceMemoryBytes(pool_.pairs())));
  }
  if (!config_.rollout().calculate_log_probs()) {
    LogWarn(
        "rollout.calculate_log_probs is false: rollouts return no log-probs, so those of rollout "
        "and trainer are not compared in this run; the trainers compute the old log-probs "
        "themselves");
  }
  const std::unique_ptr<Tracker> tracker = MakeTracker();
  const StepContext context = MakeContext(*tracker);
  TrainLoop loop(context, options_, MakeModes(context), control_, FirstGeneration());
  const std::string run_id = MakeRunId(config_, RealClock().Now());
  ClusterService cluster(registry_, *samples_, probe_,
                         MakeWelcome(ConfigForWorkers(config_, options_), *inputs_.tokenizer));
  TandemService api({.control = control_,
                     .loop = loop,
                     .run = context,
                     .options = options_,
                     .registry = registry_,
                     .progress = progress_,
                     .run_id = run_id,
                     .memory_plan = memory_plan_});
  // A worker is lost after one heartbeat timeout, and killed after two.
  TANDEM_ASSIGN_OR_RETURN(const std::string boot_id, ReadBootId());
  HangDetector hangs(
      {.run_dir = options_.run_dir,
       .boot_id = boot_id,
       .no_heartbeat_for = 2 * absl::Seconds(config_.cluster().heartbeat_timeout_seconds())},
      registry_, RealClock());
  // Nothing after the server's start returns early: API calls may wait for the end of the run, and
  // workers for the order to stop.
  TANDEM_ASSIGN_OR_RETURN(
      const auto server,
      RpcServer::Start(config_.cluster().listen(), {&cluster, &api}, SecurityOf(config_)));
  LogInfo("listening on {}, {} compute threads a worker", server->address(),
          ComputeThreads(config_));
  if (const auto cores = std::ssize(AllowedCores()); ComputeThreads(config_) > cores) {
    progress_.OnMessage(
        fmt::format("warning: cluster.compute_threads={} on {} cores: more threads than cores; 0 "
                    "chooses a number",
                    ComputeThreads(config_), cores));
  }
  std::atomic<bool> over = false;
  NamedThread watch("loss-watch", [&] {
    while (!over) {
      pool_.CancelCallsToLost();
      hangs.Poll();
      RealClock().Sleep(absl::Milliseconds(200));
    }
  });
  const absl::Status status = Work(loop, api, context, run_id);
  over = true;
  watch.Join();
  cluster.StopWorkers();
  pool_.ShutdownAll();
  server->Shutdown(absl::Seconds(1));
  return status;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Assembly>> Assembly::Create(const AssemblyOptions& options) {
  const v1::Config& config = options.config;
  const std::string& run_dir = config.cluster().run_dir();
  TANDEM_RETURN_IF_ERROR(LockRunDir(run_dir));
  TANDEM_ASSIGN_OR_RETURN(RunInputs inputs, LoadRunInputs(config));
  // A weight check must leave the run's records and checkpoints unchanged.
  const bool check_only = config.weight_sync().check_only();
  TANDEM_ASSIGN_OR_RETURN(std::unique_ptr<RunStore> store,
                          SqliteRunStore::Open(check_only ? ":memory:" : run_dir + "/run.db"));
  TANDEM_ASSIGN_OR_RETURN(
      std::unique_ptr<SampleStore> samples,
      SampleStore::Open(run_dir + "/samples", config.trainer().sample_files_to_keep()));
  const std::string& checkpoint_dir = config.trainer().default_local_dir();
  TANDEM_ASSIGN_OR_RETURN(
      CheckpointIndex checkpoints,
      check_only
          ? CheckpointIndex::OpenReadOnly(checkpoint_dir)
          : CheckpointIndex::Open(checkpoint_dir, config.trainer().max_actor_ckpt_to_keep()));
  TrainOptions train =
      MakeTrainOptions(config, inputs.tokenizer->eos_token_ids(), inputs.prompts->size());
  TANDEM_RETURN_IF_ERROR(CheckEpochs(config, train.total_steps, inputs.prompts->size()));
  TANDEM_ASSIGN_OR_RETURN(
      ResumePoint resume,
      check_only
          ? PeekResumePoint(config, checkpoints)
          : ChooseResumePoint(config, ResumeOptionsOf(config, train, inputs, options.launch_id),
                              checkpoints));
  TANDEM_ASSIGN_OR_RETURN(std::unique_ptr<RoundRunner> round_runner,
                          OpenRoundRunner(config, train, inputs, resume));
  return std::make_unique<RunAssembly>(options, std::move(inputs), std::move(store),
                                       std::move(samples), std::move(checkpoints), std::move(train),
                                       std::move(round_runner), std::move(resume));
}

namespace {

// Identifies all settings that the run's samples and weights depend on, so that only an equal run
// continues its journal.
absl::StatusOr<std::string> JournalIdentity(const v1::Config& config,
                                            const BufferOptions& options) {
  TANDEM_ASSIGN_OR_RETURN(const std::vector<ConfigChange> settings,
                          DiffConfig(ConfigToYaml(v1::Config()), config));
  return fmt::format("{}; {}", RoundJournalIdentity(options),
                     fmt::join(ChangesOfTheRun(settings), "; "));
}

BufferOptions MakeBufferOptions(const v1::Config& config,
                                const TrainOptions& train,
                                const RunInputs& inputs) {
  return {.tokenizer_digest = inputs.tokenizer->digest(),
          .vocab_limit = inputs.tokenizer->vocab_size(),
          .samples_per_prompt = train.samples_per_prompt,
          .sampling = train.sampling,
          .log_probs = config.rollout().calculate_log_probs()};
}

}  // namespace

absl::Status CheckCarriedGroups(const v1::Config& config,
                                const TrainOptions& train,
                                const RunInputs& inputs,
                                const std::string& checkpoint,
                                int64_t step) {
  if (!train.partial.enabled) return CheckNoBuffer(checkpoint);
  const auto row = [&inputs](uint64_t data_row) { return inputs.prompts->Row(data_row); };
  return ReadFittingBuffer(checkpoint, MakeBufferOptions(config, train, inputs), row, step)
      .status();
}

ResumeOptions ResumeOptionsOf(const v1::Config& config,
                              const TrainOptions& train,
                              const RunInputs& inputs,
                              std::string launch_id) {
  const auto fits = [&](const std::string& checkpoint, int64_t step) -> absl::Status {
    TANDEM_RETURN_IF_ERROR(CheckResumedAdapters(config, inputs.spec, checkpoint));
    return CheckCarriedGroups(config, train, inputs, checkpoint, step);
  };
  return {.total_steps = train.total_steps, .launch_id = std::move(launch_id), .fits = fits};
}

absl::StatusOr<std::unique_ptr<RoundRunner>> OpenRoundRunner(const v1::Config& config,
                                                             const TrainOptions& train,
                                                             const RunInputs& inputs,
                                                             ResumePoint& resume) {
  if (config.weight_sync().check_only() || !train.partial.enabled) return nullptr;
  const BufferOptions options = MakeBufferOptions(config, train, inputs);
  TANDEM_ASSIGN_OR_RETURN(std::unique_ptr<RolloutBuffer> buffer,
                          RolloutBuffer::Open(train.run_dir + "/partial_pool", options));
  TANDEM_ASSIGN_OR_RETURN(const std::string identity, JournalIdentity(config, options));
  TANDEM_ASSIGN_OR_RETURN(std::unique_ptr<RoundJournal> journal,
                          RoundJournal::Open(train.run_dir + "/partial_journal.jsonl", identity));
  if (resume.anew) TANDEM_RETURN_IF_ERROR(journal->Clear());
  if (!journal->note().empty()) resume.warnings.push_back(journal->note());
  return std::make_unique<RoundRunner>(train.partial, std::move(buffer), std::move(journal),
                                       RealClock());
}

ClientFactory GrpcClients(const v1::Config& config) {
  const absl::Duration timeout = absl::Seconds(config.cluster().rpc_timeout_seconds());
  const RpcSecurity security = SecurityOf(config);
  return {.trainer =
              [timeout, security](const WorkerEntry& entry) {
                return MakeGrpcTrainerClient(entry.announcement.address, entry.incarnation, timeout,
                                             security);
              },
          .rollout =
              [timeout, security](const WorkerEntry& entry) {
                return MakeGrpcRolloutClient(entry.announcement.address, entry.incarnation, timeout,
                                             security);
              }};
}

}  // namespace tandem
