// tandem-trainer: holds a shard of the model, trains it, and sends new weights to its rollout.
#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "common/base/build_info.h"
#include "common/base/log.h"
#include "common/base/progress.h"
#include "common/base/status.h"
#include "common/config/config.h"
#include "common/device/device_memory.h"
#include "common/net/addresses/announced_address.h"
#include "common/net/addresses/data_listener.h"
#include "common/net/channel.h"
#include "common/net/membership/membership_agent.h"
#include "common/net/protocol.h"
#include "common/net/server.h"
#include "common/net/worker_program.h"
#include "common/process/cores.h"
#include "common/process/fault_injection.h"
#include "common/process/files/private_files.h"
#include "common/process/pause_detector.h"
#include "common/process/progress_watchdog.h"
#include "common/process/stop_signal.h"
#include "trainer_worker/engine_thread.h"
#include "trainer_worker/grpc_sample_stream.h"
#include "trainer_worker/losses/policy_loss.h"
#include "trainer_worker/trainer.h"
#include "trainer_worker/trainer_service.h"
#include "trainer_worker/weight_sync/grpc_update_client.h"
#include "trainer_worker/worker_options.h"

namespace tandem {
namespace {

// The deadline of a call to the rollout, as a share of cluster.rpc_timeout_seconds. Collectives and
// the controller wait more than twice as long, so a rollout that hangs first fails the calls of its
// own trainer, whose error names the rollout.
constexpr double kPartnerShare = 0.4;

// The objects that serve the calls. They are destroyed in reverse order, after the server.
struct Worker {
  DataListener data;  // of data from trainers of other hosts; null where there are none
  TcpSecurity data_security;
  std::vector<int> cores;  // of the compute threads; empty: not pinned
  std::unique_ptr<SampleStream> samples;
  std::unique_ptr<Trainer> trainer;
  std::unique_ptr<EngineThread> engine;
};

TrainingLoad LoadOf(const TrainerStatus& status, const LedgerSnapshot& ledger) {
  TrainingLoad load{.last_collective = status.last_collective};
  for (const ThreadProgress& thread : CurrentProgress()) {
    if (thread.work_due && thread.part.starts_with("layer ")) load.layer = thread.part;
  }
  for (const LedgerEntry& entry : ledger.entries) {
    const bool of_shard =
        entry.tag == "weights" || entry.tag == "master" || entry.tag == "optimizer";
    if (of_shard) load.shard_bytes += entry.current_bytes;
  }
  return load;
}

WorkerHealth HealthOf(Trainer& trainer) {
  const TrainerStatus now = trainer.status();
  WorkerHealth health;
  health.phase = now.phase;
  health.version = now.version;
  health.last_action = now.last_action;
  health.ledger = trainer.ledger().Snapshot();
  health.numerics_class = trainer.numerics().numerics_class;
  health.training = LoadOf(now, health.ledger);
  return health;
}

RolloutConnector ConnectOverGrpc(const std::string& boot_id,
                                 absl::Duration deadline,
                                 const RpcSecurity& security,
                                 const TcpSecurity& data) {
  return [boot_id, deadline, security,
          data](const RolloutTarget& target) -> absl::StatusOr<RolloutLink> {
    TANDEM_ASSIGN_OR_RETURN(auto channel, MakeChannel(target.address, security));
    auto client = std::make_unique<GrpcUpdateClient>(
        std::move(channel), GrpcUpdateClientOptions{.rollout_incarnation = target.incarnation,
                                                    .trainer_boot_id = boot_id,
                                                    .deadline = deadline,
                                                    .scramble = target.scramble,
                                                    .over_tcp = target.over_tcp,
                                                    .data = data});
    RolloutLink link;
    link.reader = client.get();
    link.updates = std::move(client);
    return link;
  };
}

absl::Status MakeWorker(const WorkerFlags& flags,
                        const MembershipAgent& agent,
                        int64_t device_bytes,
                        Worker* worker) {
  const v1::RegisterResponse& registration = agent.registration();
  const bool gpu = registration.config().trainer().device() == "cuda";
  TANDEM_ASSIGN_OR_RETURN(TrainerOptions options,
                          MakeTrainerOptions(registration, flags.rank, gpu ? device_bytes : 0));
  const int neighbours = TopologyOf(registration.config()).trainers_per_host();
  options.cores = worker->cores =
      ComputeCores(flags.rank % neighbours, neighbours, options.threads);
  options.data_listener = worker->data.listener.get();
  options.data_security = worker->data_security;
  if (const std::string& folder = registration.config().cluster().local_dir(); !folder.empty()) {
    TANDEM_RETURN_IF_ERROR(Annotate(MakePrivateFolder(folder), "cluster.local_dir"));
  }
  TANDEM_ASSIGN_OR_RETURN(options.backend,
                          MakeBackend({.device = registration.config().trainer().device(),
                                       .place = flags.device,
                                       .threads = options.threads,
                                       .cores = options.cores}));
  TANDEM_ASSIGN_OR_RETURN(const std::string boot_id, ReadBootId());
  worker->samples = MakeGrpcSampleStream(
      [controller = flags.controller, security = flags.security] {
        return MakeChannel(controller, security);
      },
      agent.worker_id(), options.rpc_timeout);
  TANDEM_ASSIGN_OR_RETURN(
      const TcpSecurity data,
      DataSecurity(flags.security, {"rollout"}, registration.config().cluster().data_tls()));
  TANDEM_ASSIGN_OR_RETURN(
      worker->trainer, Trainer::Create(options, worker->samples.get(),
                                       ConnectOverGrpc(boot_id, kPartnerShare * options.rpc_timeout,
                                                       flags.security, data)));
  worker->engine = std::make_unique<EngineThread>("trainer");
  return worker->engine
      ->Call<bool>(
          [trainer = worker->trainer.get(), cores = options.cores]() -> absl::StatusOr<bool> {
            TANDEM_RETURN_IF_ERROR(trainer->UseOnThisThread());
            UseOneTorchThread();
            if (!cores.empty()) PinThisThread(cores.front());
            return true;
          })
      .status();
}

// Opens a port to trainers of other hosts, and announces it, if the run has any.
absl::Status AwaitOtherHosts(const WorkerFlags& flags,
                             const std::string& address,
                             MembershipAgent* agent,
                             Worker* worker) {
  const v1::Config& config = agent->registration().config();
  if (TopologyOf(config).trainer_hosts == 1) return absl::OkStatus();
  const PortRange ports = PortRangeOf(config.cluster().port_range());
  const bool data_tls = config.cluster().data_tls();
  TANDEM_ASSIGN_OR_RETURN(worker->data_security,
                          DataSecurity(flags.security, {"trainer"}, data_tls));
  TANDEM_ASSIGN_OR_RETURN(worker->data, ListenForData({.server = address,
                                                       .first_port = ports.first,
                                                       .last_port = ports.last,
                                                       .security = worker->data_security,
                                                       .clear_text = !data_tls,
                                                       .network = flags.network,
                                                       .controller = flags.controller}));
  agent->SetDataAddress(worker->data.address);
  LogInfo("trainers of other hosts connect to {}, {}", worker->data.address,
          worker->data_security.enabled() ? "with TLS" : "without TLS");
  return absl::OkStatus();
}

// Runs from registration to the end of the run.
absl::Status Serve(const WorkerFlags& flags,
                   const std::string& address,
                   TrainerService* service,
                   StopSignal* stop,
                   Worker* worker) {
  JoinOptions join;
  join.controller_address = flags.controller;
  join.role = v1::ROLE_TRAINER;
  join.rank = flags.rank;
  join.device = flags.device;
  TANDEM_ASSIGN_OR_RETURN(join.listen_address,
                          AnnouncedAddress(address, flags.network, flags.controller));
  TANDEM_ASSIGN_OR_RETURN(join.host, ThisHost(flags.node));
  TANDEM_ASSIGN_OR_RETURN(const DeviceIdentity identity, IdentifyDevice(flags.device));
  join.device_memory_bytes = identity.memory_bytes;
  join.device_uuid = identity.uuid;
  join.build = flags.build;
  join.security = flags.security;
  TANDEM_ASSIGN_OR_RETURN(auto agent,
                          MembershipAgent::Join(join, absl::Seconds(flags.join_timeout_seconds)));
  TANDEM_RETURN_IF_ERROR(AwaitOtherHosts(flags, address, agent.get(), worker));
  TANDEM_RETURN_IF_ERROR(MakeWorker(flags, *agent, join.device_memory_bytes, worker));
  Trainer* trainer = worker->trainer.get();
  service->SetReady(trainer, worker->engine.get(), agent->worker_id(),
                    MakeCallFolders(agent->registration().config()));
  const WorkerNumerics numerics = trainer->numerics();
  TANDEM_RETURN_IF_ERROR(agent->SetTokenizerAndNumerics("", numerics));
  LogInfo("serving on {}, {} compute threads {}, {} on {}", address,
          std::max(1, agent->registration().compute_threads()), PinningText(worker->cores),
          numerics.numerics_class, numerics.kernel_set);
  const ProgressWatchdog progress(
      fmt::format("trainer {}", flags.rank),
      absl::Seconds(agent->registration().config().cluster().progress_timeout_seconds()));
  agent->StartHeartbeats([trainer] { return HealthOf(*trainer); },
                         [stop](const absl::Status& end) { stop->Raise(end); });
  return stop->Wait();
}

int Run(const WorkerFlags& flags) {
  StopSignal stop;
  const PauseDetector pauses;
  UseOneTorchThread();
  const std::unique_ptr<TrainerService> service =
      TrainerService::Create([&stop] { stop.Raise(absl::OkStatus()); },
                             [&stop](const absl::Status& why) { stop.Raise(why); });
  Worker worker;
  auto server = RpcServer::Start(flags.listen, {service->service()}, flags.security);
  absl::Status end = server.status();
  if (server.ok()) {
    end = Serve(flags, (*server)->address(), service.get(), &stop, &worker);
    // A collective that hangs would block its call, and with it the server's shutdown.
    if (worker.trainer != nullptr) worker.trainer->InterruptAll();
    if (worker.engine != nullptr) worker.engine->Stop();
    if (worker.trainer != nullptr) {
      LogInfo("forward ops that ran: {}", worker.trainer->op_counts().Text());
    }
    (*server)->Shutdown(absl::Seconds(2));
  }
  if (!end.ok()) LogError("{}", std::string(end.message()));
  return WorkerExitCode(end);
}

}  // namespace
}  // namespace tandem

int main(int argc, char** argv) {
  tandem::KeepOthersFromWriting();
  tandem::WorkerFlags flags{.build = tandem::ThisBuild()};
  const int parsed = tandem::ParseWorkerFlags(
      "trainer", "Tandem trainer worker: trains a shard of the model.", argc, argv, &flags);
  if (parsed != tandem::kExitDone) return std::max(parsed, 0);
  tandem::InitLog("trainer", flags.rank);
  tandem::PinDeviceLibraries();
  tandem::InitFaultPoints("trainer", flags.rank);
  tandem::FaultPoint("start");
  const int code = tandem::Run(flags);
  tandem::FaultPoint("end");
  return code;
}
