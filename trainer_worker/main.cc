// tandem-trainer: holds a shard of the model, trains it, and sends new weights to its rollout.
#include <algorithm>
#include <memory>
#include <string>

#include <CLI/CLI.hpp>

#include "common/base/fault_point.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "common/base/stop_signal.h"
#include "common/cluster/membership_agent.h"
#include "common/cluster/protocol.h"
#include "common/device/device_memory.h"
#include "common/rpc/channel.h"
#include "common/rpc/server.h"
#include "trainer_worker/grpc_sample_stream.h"
#include "trainer_worker/losses/policy_loss.h"
#include "trainer_worker/trainer_service.h"
#include "trainer_worker/weights/grpc_update_client.h"
#include "trainer_worker/worker_options.h"

namespace tandem {
namespace {

struct Flags {
  std::string controller;
  std::string role = "trainer";
  int rank = 0;
  std::string device = "cpu:0";
  std::string listen;
  double join_timeout_seconds = 120;
};

// What serves the calls; destroyed bottom up, after the server.
struct Worker {
  std::unique_ptr<SampleStream> samples;
  std::unique_ptr<Trainer> trainer;
  std::unique_ptr<EngineThread> engine;
};

int ParseFlags(int argc, char** argv, Flags* flags) {
  CLI::App app("Tandem trainer worker: trains a shard of the model.");
  app.add_option("--controller", flags->controller, "address of the controller")->required();
  app.add_option("--role", flags->role, "must be trainer")->check(CLI::IsMember({"trainer"}));
  app.add_option("--rank", flags->rank, "rank, equal to its rollout's")
      ->required()
      ->check(CLI::NonNegativeNumber);
  app.add_option("--device", flags->device, "cpu:<rank>, equal to its rollout's");
  app.add_option("--listen", flags->listen,
                 "unix:/path or host:port; default: beside the controller's socket");
  app.add_option("--join-timeout", flags->join_timeout_seconds,
                 "seconds to wait for the controller");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    const int code = app.exit(error);
    return code == 0 ? -1 : kExitRefused;
  }
  return kExitDone;
}

int ExitCodeOf(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kOk:
    case absl::StatusCode::kAborted:  // another process took this rank
      return kExitDone;
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kDeadlineExceeded:
      return kExitControllerLost;
    case absl::StatusCode::kInternal:
      return kExitInternal;
    default:
      return kExitRefused;
  }
}

WorkerHealth HealthOf(Trainer& trainer) {
  const TrainerStatus now = trainer.status();
  WorkerHealth health;
  health.phase = now.phase;
  health.version = now.version;
  health.last_action = now.last_action;
  health.ledger = trainer.ledger().Snapshot();
  health.numerics_class = trainer.numerics_class();
  return health;
}

RpcSecurity SecurityOf(const v1::Config& config) {
  const v1::Tls& tls = config.cluster().tls();
  return {.cert = tls.cert(), .key = tls.key(), .ca = tls.ca()};
}

// The pair shares a host: its address is a Unix socket or loopback.
RolloutConnector ConnectOverGrpc(const std::string& boot_id, absl::Duration deadline) {
  return [boot_id, deadline](const std::string& address,
                             int64_t incarnation) -> absl::StatusOr<RolloutLink> {
    TANDEM_ASSIGN_OR_RETURN(auto channel, MakeChannel(address));
    auto client = std::make_unique<GrpcUpdateClient>(
        std::move(channel),
        GrpcUpdateClientOptions{
            .rollout_incarnation = incarnation, .trainer_boot_id = boot_id, .deadline = deadline});
    RolloutLink link;
    link.reader = client.get();
    link.updates = std::move(client);
    return link;
  };
}

absl::Status MakeWorker(const Flags& flags, const MembershipAgent& agent, Worker* worker) {
  const v1::RegisterResponse& registration = agent.registration();
  TANDEM_ASSIGN_OR_RETURN(const TrainerOptions options,
                          MakeTrainerOptions(registration, flags.rank));
  TANDEM_ASSIGN_OR_RETURN(const std::string boot_id, ReadBootId());
  TANDEM_ASSIGN_OR_RETURN(auto channel,
                          MakeChannel(flags.controller, SecurityOf(registration.config())));
  worker->samples =
      MakeGrpcSampleStream(std::move(channel), agent.worker_id(), options.rpc_timeout);
  TANDEM_ASSIGN_OR_RETURN(worker->trainer,
                          Trainer::Create(options, worker->samples.get(),
                                          ConnectOverGrpc(boot_id, options.rpc_timeout)));
  worker->engine = std::make_unique<EngineThread>("trainer");
  return absl::OkStatus();
}

// From registration to the end of the run.
absl::Status Serve(const Flags& flags,
                   const std::string& address,
                   TrainerService* service,
                   StopSignal* stop,
                   Worker* worker) {
  JoinOptions join;
  join.controller_address = flags.controller;
  join.role = v1::ROLE_TRAINER;
  join.rank = flags.rank;
  join.device = flags.device;
  join.listen_address = address;
  join.device_memory_bytes = MemoryLimitBytes();
  TANDEM_ASSIGN_OR_RETURN(auto agent,
                          MembershipAgent::Join(join, absl::Seconds(flags.join_timeout_seconds)));
  TANDEM_RETURN_IF_ERROR(MakeWorker(flags, *agent, worker));
  Trainer* trainer = worker->trainer.get();
  service->SetReady(trainer, worker->engine.get(), agent->worker_id());
  TANDEM_RETURN_IF_ERROR(agent->SetTokenizerAndNumerics("", trainer->numerics_class()));
  spdlog::info("serving on {}, {} compute threads, {}", address,
               std::max(1, agent->registration().compute_threads()), trainer->numerics_class());
  agent->StartHeartbeats([trainer] { return HealthOf(*trainer); },
                         [stop](const absl::Status& end) { stop->Raise(end); });
  return stop->Wait();
}

int Run(const Flags& flags) {
  StopSignal stop;
  UseOneTorchThread();
  TrainerService service([&stop] { stop.Raise(absl::OkStatus()); });
  Worker worker;
  auto server = RpcServer::Start(DefaultListenAddress(flags.listen, flags.controller, flags.rank),
                                 {&service});
  absl::Status end = server.status();
  if (server.ok()) {
    end = Serve(flags, (*server)->address(), &service, &stop, &worker);
    // A collective that hangs would keep its call, and the server, waiting.
    if (worker.trainer != nullptr) worker.trainer->InterruptAll();
    if (worker.engine != nullptr) worker.engine->Stop();
    (*server)->Shutdown(absl::Seconds(2));
  }
  if (!end.ok()) spdlog::error("{}", std::string(end.message()));
  return ExitCodeOf(end);
}

}  // namespace
}  // namespace tandem

int main(int argc, char** argv) {
  tandem::Flags flags;
  const int parsed = tandem::ParseFlags(argc, argv, &flags);
  if (parsed != tandem::kExitDone) return std::max(parsed, 0);
  tandem::InitLog("trainer", flags.rank);
  tandem::InitFaultPoints("trainer", flags.rank);
  return tandem::Run(flags);
}
