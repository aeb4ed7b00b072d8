// tandem-rollout: generates samples with the weights that its trainer sends.
#include <algorithm>
#include <atomic>
#include <memory>
#include <string>

#include <fmt/format.h>

#include "common/base/build_info.h"
#include "common/base/log.h"
#include "common/base/status.h"
#include "common/config/config.h"
#include "common/device/device_memory.h"
#include "common/net/addresses/announced_address.h"
#include "common/net/addresses/data_listener.h"
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
#include "common/text/tokenizer.h"
#include "common/types/topology.h"
#include "rollout_worker/data_listener.h"
#include "rollout_worker/rollout_service.h"
#include "rollout_worker/worker_options.h"

namespace tandem {
namespace {

WorkerHealth ReportHealth(Engine& engine) {
  const EngineStatus now = engine.status();
  WorkerHealth health;
  health.phase = RolloutStateName(now.state);
  health.version = now.version;
  health.last_action = now.last_action;
  health.ledger = engine.ledger().Snapshot();
  health.numerics_class = engine.numerics().numerics_class;
  health.generation = now.load;
  return health;
}

// Runs from registration to the end of the run.
absl::Status Serve(const WorkerFlags& flags,
                   const std::string& address,
                   RolloutService* service,
                   StopSignal* stop,
                   std::unique_ptr<SlotListener>* slots,
                   std::unique_ptr<Engine>* engine) {
  JoinOptions join;
  join.controller_address = flags.controller;
  join.role = v1::ROLE_ROLLOUT;
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
  const v1::RegisterResponse& registration = agent->registration();
  TANDEM_ASSIGN_OR_RETURN(std::shared_ptr<const Tokenizer> tokenizer,
                          Tokenizer::Load(registration.config().model().path()));
  TANDEM_ASSIGN_OR_RETURN(EngineOptions options,
                          MakeEngineOptions(registration, flags.rank, address, tokenizer));
  const Topology topology = TopologyOf(registration.config());
  flags.security.publisher->store(topology.PublisherOf(flags.rank));
  const int neighbours = topology.rollouts_per_host();
  options.cores = ComputeCores(flags.rank % neighbours, neighbours, options.threads);
  TANDEM_ASSIGN_OR_RETURN(options.backend,
                          MakeBackend({.device = registration.config().trainer().device(),
                                       .place = flags.device,
                                       .threads = options.threads,
                                       .cores = options.cores}));
  if (const std::string& folder = registration.config().cluster().local_dir(); !folder.empty()) {
    TANDEM_RETURN_IF_ERROR(Annotate(MakePrivateFolder(folder), "cluster.local_dir"));
  }
  if (!options.backend->device()->is_host()) options.device_bytes = join.device_memory_bytes;
  TANDEM_ASSIGN_OR_RETURN(*slots, ListenForSlots(registration.config(), address, flags));
  options.updates.slot_listener = slots->get();
  TANDEM_ASSIGN_OR_RETURN(
      options.updates.relay_security,
      DataSecurity(flags.security, {"rollout"}, registration.config().cluster().data_tls()));
  options.device_lost = [stop](const absl::Status& why) { stop->Raise(why); };
  TANDEM_ASSIGN_OR_RETURN(*engine, Engine::Create(options));
  service->SetReady(engine->get(), agent->worker_id());
  const WorkerNumerics numerics = (*engine)->numerics();
  TANDEM_RETURN_IF_ERROR(agent->SetTokenizerAndNumerics(tokenizer->digest(), numerics));
  LogInfo("serving on {}, {} compute threads {}, {} on {}", address, options.threads,
          PinningText(options.cores), numerics.numerics_class, numerics.kernel_set);
  const ProgressWatchdog progress(
      fmt::format("rollout {}", flags.rank),
      absl::Seconds(agent->registration().config().cluster().progress_timeout_seconds()));
  agent->StartHeartbeats([raw = engine->get()] { return ReportHealth(*raw); },
                         [stop](const absl::Status& end) { stop->Raise(end); });
  return stop->Wait();
}

int Run(const WorkerFlags& flags) {
  StopSignal stop;
  const PauseDetector pauses;
  const auto service = RolloutService::Create([&stop] { stop.Raise(absl::OkStatus()); });
  std::unique_ptr<SlotListener> slots;
  std::unique_ptr<Engine> engine;
  auto server = RpcServer::Start(flags.listen, {service->service()}, flags.security);
  absl::Status end = server.status();
  if (server.ok()) {
    end = Serve(flags, (*server)->address(), service.get(), &stop, &slots, &engine);
    // The engine stops first, as it ends the streams that the server's shutdown waits for.
    if (engine != nullptr) {
      engine->Shutdown();
      LogInfo("forward ops that ran: {}", engine->op_counts().Text());
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
      "rollout", "Tandem rollout worker: generates samples with the weights its trainer sends.",
      argc, argv, &flags);
  if (parsed != tandem::kExitDone) return std::max(parsed, 0);
  // The server starts before the controller says which trainer it is.
  flags.security.publisher = std::make_shared<std::atomic<int>>(-1);
  tandem::InitLog("rollout", flags.rank);
  tandem::InitFaultPoints("rollout", flags.rank);
  tandem::FaultPoint("start");
  const int code = tandem::Run(flags);
  tandem::FaultPoint("end");
  return code;
}
