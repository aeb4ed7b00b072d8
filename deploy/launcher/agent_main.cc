// tandem-agent --controller ADDRESS --host-index I --hosts H: the workers of one host of several.
#include <atomic>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <unistd.h>

#include "common/base/build_info.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/status.h"
#include "common/net/membership/agent_client.h"
#include "common/net/protocol.h"
#include "common/net/worker_program.h"
#include "common/process/files/private_files.h"
#include "common/process/pause_detector.h"
#include "common/process/threads.h"
#include "deploy/launcher/agent_loop.h"
#include "deploy/launcher/process_loop.h"
#include "deploy/launcher/slurm/launch_sign.h"
#include "deploy/launcher/slurm/run_program.h"
#include "deploy/launcher/slurm/step.h"

namespace tandem {
namespace {

constexpr int kMostHosts = 4096;

struct AgentFlags {
  std::string controller;
  int host_index = 0;
  int hosts = 1;
  std::string node;
  NetworkFlags network;
  RpcSecurity security;
  std::string tls_dir;
  std::string bin_dir;
  std::string log_dir;
  double grace_seconds = 20;
  double join_timeout_seconds = 120;
  std::string requeue_job;  // of Slurm's
  std::string launch_sign;  // the file of its launcher's LaunchSign
};

int ParseAgentFlags(int argc, char** argv, AgentFlags* flags) {
  CLI::App app(
      "Starts, watches, restarts and ends the trainers and rollouts of one host, as a controller "
      "on "
      "any host says.");
  app.set_version_flag("--version", BuildText(ThisBuild(), "tandem-agent"));
  app.add_option("--controller", flags->controller, "address of the controller")->required();
  app.add_option(
         "--host-index", flags->host_index,
         "which host of the configuration this is, from 0; where trainers and rollouts have "
         "hosts of their own, the trainers' come first")
      ->required()
      ->check(CLI::Range(0, kMostHosts - 1));
  app.add_option("--hosts", flags->hosts,
                 "on how many hosts agents are started: trainer.nnodes; with "
                 "cluster.hybrid_engine=false the larger of trainer.nnodes and rollout.nnodes for "
                 "both roles side by side, or their sum for hosts of their own")
      ->required()
      ->check(CLI::Range(1, kMostHosts));
  AddNetworkFlags(app, &flags->node, &flags->network, &flags->security);
  app.add_option("--tls-dir", flags->tls_dir,
                 "folder with agent.pem, trainer.pem and rollout.pem (or trainer-RANK.pem), their "
                 ".key and ca.pem, in place of the three files, which the workers use too");
  app.add_option("--bin-dir", flags->bin_dir, "where tandem-trainer and tandem-rollout are");
  app.add_option("--log-dir", flags->log_dir,
                 "folder for the workers' logs; default: logs in the run directory");
  app.add_option("--grace", flags->grace_seconds, "seconds from asking a worker to end to killing")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  app.add_option("--join-timeout", flags->join_timeout_seconds,
                 "seconds to wait for the controller")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  CLI::Option* const sign = app.add_option("--launch-sign", flags->launch_sign,
                                           "file that the launcher writes every few seconds");
  app.add_option(
         "--requeue-job", flags->requeue_job,
         "job of Slurm's to begin anew where the controller is lost after it was there, and "
         "the job's launcher as well, which would do so")
      ->needs(sign);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? -1 : kExitRefused;
  }
  return kExitDone;
}

absl::Status CheckAgentFlags(AgentFlags* flags) {
  RpcSecurity& security = flags->security;
  if (!flags->tls_dir.empty()) {
    if (security.enabled()) {
      return InvalidArgument("--tls-dir stands in place of --tls-cert, --tls-key and --tls-ca");
    }
    const std::string token = security.token_file;
    security = TlsFilesIn(flags->tls_dir, "agent", /*rank=*/-1);
    security.token_file = token;
  }
  security.token_file = WorkerTokenFile(security.token_file, flags->controller);
  return CheckTokenFile(flags->controller, security);
}

int Fail(int code, const absl::Status& status) {
  std::fputs(("agent: " + std::string(status.message()) + "\n").c_str(), stderr);
  return code;
}

AgentNews MakeNews(const AgentFlags& flags, const HostId& host) {
  const BuildInfo build = ThisBuild();
  return {.protocol = kProtocolVersion,
          .build = BuildText(build),
          .build_id = BuildId(build),
          .host = host,
          .host_index = flags.host_index,
          .hosts = flags.hosts,
          .boot_nonce = MakeBootNonce(),
          .pid = getpid()};
}

LaunchPlan MakeAgentPlan(const AgentFlags& flags, const AgentOrders& orders, const HostId& host) {
  LaunchPlan plan{.bin_dir = flags.bin_dir,
                  .run_dir = orders.run_dir,
                  .log_dir = flags.log_dir.empty() ? orders.run_dir + "/logs" : flags.log_dir,
                  .listen = flags.controller,
                  .log_max_bytes = orders.limits.log_max_bytes,
                  .log_files_to_keep = orders.limits.log_files_to_keep,
                  .tls_dir = flags.tls_dir,
                  .token_file = flags.security.token_file,
                  .network_flags = {"--node", host.node}};
  if (flags.tls_dir.empty()) {
    plan.tls_cert = flags.security.cert;
    plan.tls_key = flags.security.key;
    plan.tls_ca = flags.security.ca;
  }
  const auto pass_on = [&plan](const std::string& flag, const std::string& value) {
    if (!value.empty()) plan.network_flags.insert(plan.network_flags.end(), {flag, value});
  };
  pass_on("--advertise", flags.network.advertise);
  pass_on("--interface", flags.network.interface);
  return plan;
}

// Where nobody is in charge of the job any more; if only this host is cut off, the run goes on
// without it. Of several agents that ask, Slurm takes the first at its word.
void RequeueAbandoned(const std::string& job, const std::string& launch_sign) {
  if (LaunchIsInCharge(launch_sign, RealClock())) return;
  absl::StatusOr<std::string> asked = FindProgram("scontrol");
  if (asked.ok()) asked = RunProgram(RequeueCommand(*asked, job));
  std::fputs(
      fmt::format("agent: controller and launcher are lost: job {} {}\n", job,
                  asked.ok() ? "begins anew"
                             : "does not begin anew: " + std::string(asked.status().message()))
          .c_str(),
      stderr);
}

int Supervise(const AgentFlags& flags,
              const HostId& host,
              const AgentNews& news,
              const AgentOrders& orders,
              AgentClient* client) {
  LaunchPlan plan = MakeAgentPlan(flags, orders, host);
  if (const absl::Status logs = MakeFolder(plan.log_dir); !logs.ok()) {
    client->Leave(news);
    return Fail(kExitIoError, Annotate(logs, "the folder of logs (--log-dir)"));
  }
  ProcessTable table(std::move(plan));
  const SupervisorOptions options{.processes = TakeOrders(orders, &table),
                                  .max_restarts = orders.limits.max_restarts,
                                  .restart_window = orders.limits.restart_window,
                                  .grace = absl::Seconds(flags.grace_seconds)};
  const int code = RunAgent(news, orders, options, &table, client);
  if (code == kExitPeerLost && !flags.requeue_job.empty()) {
    RequeueAbandoned(flags.requeue_job, flags.launch_sign);
  }
  return code;
}

// While it lives, a signal that stops the agent ends it at once: nothing runs yet that would have
// to be stopped first.
class StopAtOnce {
 public:
  StopAtOnce()
      : thread_("signals", [this] {
          while (!over_) {
            const int signal = WaitForSignal(SignalReader::kAgent, absl::Milliseconds(100));
            if (signal != 0 && signal != SIGCHLD) _exit(128 + signal);
          }
        }) {}
  ~StopAtOnce() {
    over_ = true;
    thread_.Join();
  }
  StopAtOnce(const StopAtOnce&) = delete;
  StopAtOnce& operator=(const StopAtOnce&) = delete;

 private:
  std::atomic<bool> over_ = false;
  NamedThread thread_;
};

int RunAgentProgram(AgentFlags flags) {
  const absl::Status checked = CheckAgentFlags(&flags);
  if (!checked.ok()) return Fail(kExitRefused, checked);
  const absl::StatusOr<HostId> host = ThisHost(flags.node);
  if (!host.ok()) return Fail(kExitRefused, host.status());
  const PauseDetector pauses;
  const auto client =
      AgentClient::Connect({.controller_address = flags.controller, .security = flags.security});
  if (!client.ok()) return Fail(kExitRefused, client.status());
  const AgentNews news = MakeNews(flags, *host);
  const absl::StatusOr<AgentOrders> orders = [&] {
    const StopAtOnce stops;
    return (*client)->Join(news, absl::Seconds(flags.join_timeout_seconds));
  }();
  if (!orders.ok()) {
    // The holder of its place may still be ending.
    const bool later =
        absl::IsUnavailable(orders.status()) || absl::IsAlreadyExists(orders.status());
    return Fail(later ? kExitPeerLost : kExitRefused, orders.status());
  }
  return orders->over ? kExitDone : Supervise(flags, *host, news, *orders, client->get());
}

}  // namespace
}  // namespace tandem

int main(int argc, char** argv) {
  // A reader of its output that goes away must not end the run.
  std::signal(SIGPIPE, SIG_IGN);
  // A scheduler may send them to every process of a job; workers inherit this.
  std::signal(SIGUSR1, SIG_IGN);
  std::signal(SIGUSR2, SIG_IGN);
  tandem::AgentFlags flags;
  std::error_code error;
  flags.bin_dir = std::filesystem::read_symlink("/proc/self/exe", error).parent_path().string();
  // Flags first: --help and a wrong flag need nothing of the rest.
  const int parsed = tandem::ParseAgentFlags(argc, argv, &flags);
  if (parsed != tandem::kExitDone) return parsed < 0 ? tandem::kExitDone : parsed;
  tandem::BlockSignals(tandem::SignalReader::kAgent);
  tandem::KeepOthersFromWriting();
  tandem::InitLog("agent", flags.host_index);
  return tandem::RunAgentProgram(std::move(flags));
}
