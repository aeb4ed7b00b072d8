#include "controller/assembly/run_core.h"

#include <atomic>
#include <iterator>
#include <utility>

#include <fmt/format.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/status.h"
#include "common/config/config.h"
#include "common/device/device_memory.h"
#include "common/net/call_observer.h"
#include "common/net/protocol.h"
#include "common/net/security/tls_credentials.h"
#include "common/net/server.h"
#include "common/process/cores.h"
#include "common/process/files/controller_address.h"
#include "common/process/files/run_token.h"
#include "common/process/threads.h"
#include "controller/api/agent_service.h"
#include "controller/api/cluster_service.h"
#include "controller/api/health_client.h"
#include "controller/api/tandem_service.h"
#include "controller/assembly/run_assembly.h"
#include "controller/assembly/run_options.h"
#include "controller/assembly/run_outputs.h"
#include "controller/assembly/run_plan.h"
#include "controller/plan/memory_plan.h"
#include "controller/plan/plan_input.h"
#include "controller/plan/transfer_plan.h"
#include "controller/run/loop_watch.h"
#include "controller/store/disk/waiting_run_store.h"
#include "controller/workers/hang_detector.h"
#include "controller/workers/rank_holders.h"
#include "controller/workers/rollout_client.h"
#include "controller/workers/trainer_calls.h"
#include "controller/workers/trainer_client.h"
#include "tandem/v1/config.pb.h"

namespace tandem {
namespace {

// Shorter than the deadline of a registration.
constexpr absl::Duration kDialTimeout = absl::Seconds(5);
// How long the end of a run waits for a beat of each agent, beyond the time between two.
constexpr absl::Duration kLetAgentsGo = absl::Seconds(5);

v1::RegisterResponse MakeWelcome(const v1::Config& config, const Tokenizer& tokenizer) {
  v1::RegisterResponse welcome;
  *welcome.mutable_config() = config;
  welcome.set_run_dir(config.cluster().run_dir());
  welcome.set_vocab_limit(tokenizer.vocab_size());
  welcome.set_tokenizer_digest(tokenizer.digest());
  for (const int32_t id : tokenizer.eos_token_ids()) welcome.add_stop_token_ids(id);
  return welcome;
}

// Notes the calls to one worker in a blackbox.
class NotedCalls final : public CallObserver {
 public:
  NotedCalls(std::shared_ptr<Blackbox> blackbox, std::string worker)
      : blackbox_(std::move(blackbox)), worker_(std::move(worker)) {}

  void OnCall(const std::string& method) override { blackbox_->NoteCall(worker_, method); }
  void OnAnswer(const std::string& method, absl::StatusCode code) override {
    blackbox_->NoteAnswer(worker_, method, code);
  }

 private:
  const std::shared_ptr<Blackbox> blackbox_;  // the end of a call may outlive the run
  const std::string worker_;
};

std::shared_ptr<CallObserver> MakeCallObserver(const std::shared_ptr<Blackbox>& blackbox,
                                               const WorkerEntry& entry) {
  if (blackbox == nullptr) return nullptr;
  return std::make_shared<NotedCalls>(blackbox, entry.key().Text());
}

// The clients of a run's workers, with the deadlines and the TLS files of cluster.*. `blackbox`
// may be null.
ClientFactory GrpcClients(const v1::Config& config, const std::shared_ptr<Blackbox>& blackbox) {
  const absl::Duration timeout = absl::Seconds(config.cluster().rpc_timeout_seconds());
  const RpcSecurity security = MakeRpcSecurity(config);
  const auto group = std::make_shared<TrainerGroup>();
  return {.trainer =
              [timeout, security, blackbox, group](const WorkerEntry& entry) {
                return MakeGrpcTrainerClient(entry.announcement.address, entry.incarnation, timeout,
                                             security, MakeCallObserver(blackbox, entry), group);
              },
          .rollout =
              [timeout, security, blackbox, group](const WorkerEntry& entry) {
                return MakeGrpcRolloutClient(entry.announcement.address, entry.incarnation, timeout,
                                             security, MakeCallObserver(blackbox, entry), group);
              }};
}

// `load` must outlive the registry.
RegistryOptions WithLoadLog(RegistryOptions options, LoadLog& load) {
  options.on_load = [&load](int rank, const GeneratorLoad& told) {
    load.Note(rank, told, RealClock().WallNow());
  };
  return options;
}

// Of a registry or a probe.
template <typename Options>
Options WithRollouts(Options options, const std::shared_ptr<ActiveRollouts>& rollouts) {
  options.rollouts = rollouts;
  return options;
}

}  // namespace

absl::StatusOr<std::unique_ptr<SampleStore>> OpenSamples(const v1::Config& config) {
  return SampleStore::Open(config.cluster().run_dir() + "/samples",
                           config.trainer().sample_files_to_keep());
}

absl::StatusOr<std::unique_ptr<SampleStore>> OpenUpcomingSamples(const v1::Config& config) {
  return SampleStore::Open(config.cluster().run_dir() + "/upcoming_samples", /*keep=*/1);
}

RunCore::RunCore(const AssemblyOptions& options,
                 std::string run_id,
                 RunInputs inputs,
                 TrainOptions train,
                 RunStores stores,
                 CheckPolicy check)
    : config_(std::make_unique<v1::Config>(options.config)),
      log_json_(options.log_json),
      signs_(options.signs),
      inputs_(std::move(inputs)),
      stores_(std::move(stores)),
      options_(std::move(train)),
      run_id_(std::move(run_id)),
      control_(options_.total_steps, options.start),
      active_rollouts_(std::make_shared<ActiveRollouts>(
          TopologyOf(*config_).rollouts, static_cast<int>(config_->cluster().min_rollouts()))),
      probe_(WithRollouts(MakeProbeOptions(*config_, inputs_.tokenizer->vocab_size()),
                          active_rollouts_)),
      registry_(
          WithRollouts(
              WithLoadLog(MakeRegistryOptions(
                              *config_, inputs_.tokenizer->digest(), options.build, options.host),
                          load_),
              active_rollouts_),
          RealClock()),
      agents_(MakeAgentOptions(*config_, options.build), RealClock()),
      pool_(registry_,
            GrpcClients(*config_, stores_.blackbox),
            TopologyOf(*config_),
            RealClock(),
            active_rollouts_),
      shown_(MakeShownProgress(*config_, log_json_)),
      events_(*stores_.records, stores_.blackbox.get(), RealClock()),
      progress_({shown_.get(), &events_}),
      budget_(config_->cluster().max_restarts(),
              absl::Seconds(config_->cluster().restart_window_seconds())),
      placement_(MakePlacement(TopologyOf(*config_), options_)),
      weights_(pool_,
               placement_->Routes(),
               MakeWeightCheckFiles(*config_),
               check,
               MakeScrambleMode(config_->weight_sync()),
               OverTcpByHost(registry_, config_->weight_sync().transport() == "tcp"),
               MakeFanOut(config_->weight_sync().fan_out(),
                          registry_,
                          OverTcpByHost(registry_, config_->weight_sync().transport() == "tcp"))),
      // Two decoding batches in flight keep a rollout busy while the next group is sent.
      fleet_(pool_,
             weights_,
             budget_,
             progress_,
             {.max_in_flight_samples = 2 * config_->rollout().max_num_seqs(),
              .vocab_limit = inputs_.tokenizer->vocab_size(),
              .register_timeout = options_.register_timeout,
              .interrupted = [this] { return control_.stop_now(); }}),
      disk_(RealClock(),
            {.retry_every = absl::Seconds(config_->trainer().disk_retry_seconds()),
             .ended = [this] { return control_.snapshot().ending(); },
             .tell = [this](const std::string& text) { progress_.OnMessage(text); }}) {
  inputs_.reward->EndWhen([this] { return control_.stop_now(); });
  stores_.records =
      std::make_unique<WaitingRunStore>(std::move(stores_.records), options_.run_dir, disk_);
}

RunCore::~RunCore() = default;

StepContext RunCore::MakeContext(Tracker& tracker) {
  return {.pool = pool_,
          .weights = weights_,
          .fleet = fleet_,
          .budget = budget_,
          .prompts = *inputs_.prompts,
          .reward = *inputs_.reward,
          .text = *inputs_.codec,
          .samples = *stores_.samples,
          .upcoming = stores_.upcoming.get(),
          .probe = probe_,
          .store = *stores_.records,
          .tracker = tracker,
          .progress = progress_,
          .checkpoints = stores_.checkpoints,
          .disk = disk_,
          .clock = RealClock(),
          .validation = inputs_.validation,
          .interrupted = [this] { return control_.stop_now(); },
          .take_load = [this] { return load_.Take(); },
          .note_syncs = [this](const std::vector<SyncRecord>& syncs) { syncs_.Note(syncs); }};
}

void RunCore::TellStart(const ResumePoint& start) {
  if (!start.note.empty()) {
    LogInfo("{}", start.note);
    progress_.OnMessage(start.note);
  }
  for (const std::string& warning : start.warnings) {
    LogWarn("{}", warning);
    progress_.OnMessage("warning: " + warning);
  }
}

absl::Status RunCore::MakePlan(int64_t device_bytes) {
  TANDEM_ASSIGN_OR_RETURN(const MemoryPlan plan, PlanRun(inputs_.spec, *config_, device_bytes,
                                                         LocalDirOf(*config_), progress_));
  options_.sleep = ChooseSleepMode(plan);
  memory_plan_ = MemoryPlanToJson(plan);
  return absl::OkStatus();
}

absl::Status RunCore::PlanAhead() {
  return PlansForGpu(*config_)
             ? absl::OkStatus()
             : MakePlan(CpuDeviceMemoryBytes(TopologyOf(*config_).devices_per_host()));
}

absl::Status RunCore::PlanForGpus(TandemService& api) {
  TANDEM_ASSIGN_OR_RETURN(const int64_t bytes,
                          AwaitGpuBytes(pool_, registry_, options_.register_timeout,
                                        [this] { return control_.stop_now(); }));
  TANDEM_RETURN_IF_ERROR(MakePlan(bytes));
  api.SetMemoryPlan(memory_plan_);
  return absl::OkStatus();
}

absl::Status ReasonOfEnd(const RunControl& control, const absl::Status& status) {
  const absl::Status failure = control.failure();
  const bool follows = status.ok() || IsPeerFailure(status) || WorkerDidNotReturn(status);
  return !failure.ok() && follows ? failure : status;
}

void RunCore::EndRun(const absl::Status& failure) {
  if (!control_.failure().ok() || control_.stop_now()) return;  // it ends already
  LogError("The run cannot go on: {}", std::string(failure.message()));
  control_.Fail(failure);
  control_.StopNow();
}

void RunCore::LetAgentsGo() {
  agents_.EndRun();
  const Instant deadline =
      RealClock().Now() + kLetAgentsGo + absl::Seconds(config_->cluster().heartbeat_seconds());
  while (!agents_.AllToldOver() && RealClock().Now() < deadline) {
    RealClock().Sleep(absl::Milliseconds(20));
  }
}

void RunCore::MoveWorkers() {
  for (const AgentEntry& lost : agents_.DetectLost()) {
    LogWarn("No beat from {} for cluster.heartbeat_timeout_seconds: another may take its place",
            lost.Text());
  }
  for (const MovedWorkers& moved : agents_.MoveWorkers()) {
    for (const WorkerKey& key : moved.workers) {
      const std::optional<WorkerEntry> worker = registry_.Find(key);
      if (worker && worker->announcement.host != moved.to) {
        registry_.MarkLost(key, worker->incarnation, WorkerLoss::kReplaced);
      }
      if (key.role != WorkerRole::kRollout) continue;
      // After MarkLost, as one that is still ready would be taken in again.
      moved.to ? active_rollouts_->Expect(key.rank) : active_rollouts_->LeaveOut(key.rank);
    }
    LogWarn("{}", moved.text);
    events_.OnEvent({.severity = "warning", .kind = "loss", .text = moved.text});
  }
}

void RunCore::TellListening(const std::string& address, ThreadsByRole threads) {
  LogInfo("listening on {}, {} compute threads a trainer, {} a rollout", address, threads.trainer,
          threads.rollout);
  if (const auto cores = std::ssize(AllowedCores()); threads.trainer > cores) {
    progress_.OnMessage(
        fmt::format("warning: cluster.compute_threads={} on {} cores: more threads than cores; 0 "
                    "chooses a number",
                    threads.trainer, cores));
  }
}

absl::Status RunCore::Serve(const StepContext& context,
                            const RunPosition& position,
                            const std::function<absl::Status()>& work) {
  const RpcSecurity security = MakeRpcSecurity(*config_);
  TANDEM_ASSIGN_OR_RETURN(const std::string project, ServedProject(security));
  RankHolders holders(options_.run_dir);
  registry_.Reserve(holders.Read());
  const ThreadsByRole threads = ComputeThreads(*config_);
  ClusterService cluster(registry_, holders, *stores_.samples, stores_.upcoming.get(), probe_,
                         MakeWelcome(ConfigForWorkers(*config_, options_), *inputs_.tokenizer),
                         threads, project, [security](const std::string& address, auto done) {
                           DialBack(address, security, kDialTimeout, std::move(done));
                         });
  TandemService api({.control = control_,
                     .position = position,
                     .run = context,
                     .options = options_,
                     .registry = registry_,
                     .progress = progress_,
                     .run_id = run_id_,
                     .memory_plan = memory_plan_,
                     .events = &events_,
                     .agents = &agents_,
                     .routes = MakeRouteInput(inputs_.spec, *config_),
                     .syncs = &syncs_});
  AgentService agents(agents_, registry_, [this](const absl::Status& failure) { EndRun(failure); });
  // A worker is lost after one heartbeat timeout, and killed after two.
  HangDetector hangs(
      {.run_dir = options_.run_dir,
       .no_heartbeat_for = 2 * absl::Seconds(config_->cluster().heartbeat_timeout_seconds()),
       .ask_agent =
           [this](const WorkerEntry& worker) {
             const Announcement& process = worker.announcement;
             return agents_.AskToKill(process.host, process.key, process.pid);
           }},
      registry_, RealClock());
  // Nothing after the server's start returns early: API calls may wait for the end of the run, and
  // workers for the order to stop.
  TANDEM_ASSIGN_OR_RETURN(const auto token, RunToken::Make(security.token_file));
  TANDEM_ASSIGN_OR_RETURN(const auto server, RpcServer::Start(config_->cluster().listen(),
                                                              {&cluster, &agents, &api}, security));
  const PublishedAddress published(options_.run_dir, server->address());
  TellListening(server->address(), threads);
  std::atomic<bool> over = false;
  if (signs_ != nullptr) signs_->Ready();
  NamedThread watch("loss-watch", [&] {
    while (!over) {
      pool_.DetectLostAndCancelCalls();
      hangs.Poll();
      MoveWorkers();
      RealClock().Sleep(absl::Milliseconds(200));
    }
  });
  absl::Status status =
      PlansForGpu(*config_) ? ReasonOfEnd(control_, PlanForGpus(api)) : absl::OkStatus();
  if (status.ok()) {
    status = work();
  } else {
    control_.OnEnded(status);
  }
  over = true;
  watch.Join();
  cluster.StopWorkers();
  ShutDownWorkers(pool_);
  LetAgentsGo();
  server->Shutdown(absl::Seconds(1));
  holders.Remove();
  return status;
}

}  // namespace tandem
