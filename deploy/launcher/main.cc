// tandem-launcher --config FILE [--set key=value ...]: one controller and its workers on this host,
// or agents on several.
#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <optional>
#include <utility>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <unistd.h>

#include "common/base/build_info.h"
#include "common/base/clock.h"
#include "common/base/status.h"
#include "common/config/check.h"
#include "common/config/config.h"
#include "common/config/loaded_config.h"
#include "common/formats/hf_checkpoint.h"
#include "common/net/addresses/announced_address.h"
#include "common/net/start_checks.h"
#include "common/process/directory_lock.h"
#include "common/process/files/private_files.h"
#include "common/process/pause_detector.h"
#include "common/types/shell_word.h"
#include "controller/algorithm/advantage_estimator.h"
#include "controller/reward/check_reward.h"
#include "deploy/launcher/process_loop.h"
#include "deploy/launcher/run_loop.h"
#include "deploy/launcher/slurm/launch_sign.h"
#include "deploy/launcher/slurm_launch.h"

namespace tandem {
namespace {

struct Flags {
  std::string config;
  std::vector<std::string> overrides;
  std::string bin_dir;
  double grace_seconds = 20;
  bool has_grace = false;  // the user names it
  double stop_grace_seconds = 600;
  bool start_paused = false;
  bool dry_run = false;
  bool slurm = false;
  int agents = 0;  // 0: as the configuration says
  std::string interface;
  std::string log = "text";
};

int Fail(FailedAt stage, const absl::Status& status) {
  std::fputs((std::string(status.message()) + "\n").c_str(), stderr);
  return ExitCodeAt(stage, status);
}

// Replaces this process by the controller; returns only if it cannot be started.
int DryRun(const Flags& flags) {
  std::vector<std::string> command = {flags.bin_dir + "/tandem-controller",
                                      "--config",
                                      flags.config,
                                      "--dry-run",
                                      "--log",
                                      flags.log};
  for (const std::string& change : flags.overrides) {
    command.insert(command.end(), {"--set", change});
  }
  std::vector<char*> argv;
  for (std::string& argument : command) argv.push_back(argument.data());
  argv.push_back(nullptr);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);  // Ctrl-C ends it
  execv(argv[0], argv.data());
  return Fail(FailedAt::kInputs, absl::NotFoundError(command[0] + ": " + std::strerror(errno)));
}

// Whether there are agents that --interface could be for.
absl::Status CheckInterface(const Flags& flags, const v1::Config& config) {
  if (flags.interface.empty() || flags.slurm || flags.agents > 0) return absl::OkStatus();
  if (TopologyOf(config).several_hosts()) return absl::OkStatus();
  return InvalidArgument(
      "--interface {}: all workers are on this host, and no other has to reach them: leave it out, "
      "or have agents start the workers (--slurm, --agents, trainer.nnodes, rollout.nnodes)",
      flags.interface);
}

// The hosts on which agents of a user's start the workers; 0: the launcher starts them itself.
absl::StatusOr<int> HostsOfAgents(const Flags& flags, const v1::Config& config) {
  const Topology topology = TopologyOf(config);
  if (flags.slurm || (flags.agents == 0 && !topology.several_hosts())) return 0;
  const int hosts = flags.agents > 0 ? flags.agents
                                     : std::max(topology.trainer_hosts, topology.rollout_hosts) +
                                           static_cast<int>(config.cluster().spare_hosts());
  if (config.cluster().listen().starts_with("unix:")) {
    return InvalidArgument(
        "{}: agents on {} hosts start the workers, and cluster.listen is a Unix socket, which "
        "other hosts do not reach: set it to an address and port of this host",
        topology.Text(), hosts);
  }
  if (IsWildcard(config.cluster().listen())) {
    return InvalidArgument(
        "cluster.listen={}: agents on {} hosts start the workers and are told where the controller "
        "is: name the address of this host that they reach",
        config.cluster().listen(), hosts);
  }
  return hosts;
}

// Tells the user what to start on each host.
void PrintAgents(const LaunchPlan& plan) {
  const size_t hosts = plan.agents.nodes.size();
  std::fputs(fmt::format("launcher: {} start the workers; start one on each, again where it ends "
                         "with a signal or 69:\n",
                         hosts == 1 ? "An agent shall" : fmt::format("{} agents shall", hosts))
                 .c_str(),
             stderr);
  for (size_t host = 0; host < hosts; ++host) {
    std::string line = " ";
    for (const std::string& word : AgentCommand(plan, static_cast<int>(host))) {
      line += " " + ShellWord(word);
    }
    std::fputs((line + "\n").c_str(), stderr);
  }
}

// What a launch and a dry run refuse for the keys of cluster alone.
absl::Status CheckCluster(const v1::Cluster& cluster) {
  if (cluster.listen().ends_with(":0")) {
    return InvalidArgument(
        "cluster.listen={}: the launcher must tell the workers the controller's port, so name one, "
        "or leave the key out for a socket in the run directory; port 0 is for a controller "
        "started by hand",
        cluster.listen());
  }
  const v1::Tls& tls = cluster.tls();
  return CheckStartPlace({.run_dir = cluster.run_dir(),
                          .listen = cluster.listen(),
                          .security = {.cert = tls.cert(), .key = tls.key(), .ca = tls.ca()}});
}

// The run directory, for this launch alone as long as the lock is held.
absl::StatusOr<DirectoryLock> TakeRunDir(const std::string& run_dir) {
  absl::Status folders = MakePrivateFolder(run_dir);
  if (folders.ok()) folders = MakeFolder(run_dir + "/logs");
  if (!folders.ok()) return Annotate(folders, "cluster.run_dir");
  auto lock = DirectoryLock::Take(run_dir, kLauncherLock, "a launcher",
                                  "stop it, or choose another directory with --set "
                                  "cluster.run_dir=DIR");
  if (!lock.ok()) return Annotate(lock.status(), "cluster.run_dir");
  return lock;
}

SupervisorOptions SupervisorOptionsOf(const Flags& flags, const v1::Config& config) {
  return {.max_restarts = static_cast<int>(config.cluster().max_restarts()),
          .restart_window = absl::Seconds(config.cluster().restart_window_seconds()),
          .watchdog = absl::Seconds(config.cluster().watchdog_seconds()),
          .grace = absl::Seconds(flags.grace_seconds),
          .stop_grace = absl::Seconds(flags.stop_grace_seconds),
          .agents_may_stay_away = config.cluster().elastic()};
}

// What follows once the configuration is known to be good. `slurm`: the job that this launch is in.
int Start(const Flags& flags, LoadedConfig loaded, std::optional<SlurmLaunch> slurm) {
  const auto agents = HostsOfAgents(flags, loaded.config);
  if (!agents.ok()) return Fail(FailedAt::kConfig, agents.status());
  const auto lock = TakeRunDir(loaded.config.cluster().run_dir());
  if (!lock.ok()) return Fail(FailedAt::kInputs, lock.status());
  std::vector<std::string> overrides = flags.overrides;
  if (slurm) {
    absl::Status place = slurm->Complete(&loaded, &overrides);
    if (place.ok()) place = CheckCluster(loaded.config.cluster());
    if (!place.ok()) return Fail(FailedAt::kConfig, place);
  }
  LaunchPlan plan = MakeLaunchPlan(loaded.config, flags.bin_dir, flags.config, overrides);
  plan.start_paused = flags.start_paused;
  plan.log = flags.log;
  plan.launch_id = fmt::format("{}-{}", getpid(), absl::ToUnixNanos(RealClock().WallNow()));
  plan.agents = {.nodes = std::vector<std::string>(static_cast<size_t>(*agents)),
                 .interface = flags.interface,
                 .tls_dir = CertificatesOfAgents(plan.tls_cert),
                 .grace = flags.has_grace ? fmt::format("{}", flags.grace_seconds) : ""};
  if (slurm) {
    const absl::Status extended = slurm->Extend(&plan);
    if (!extended.ok()) return Fail(FailedAt::kInputs, Annotate(extended, "cluster.run_dir"));
  }
  if (*agents > 0) PrintAgents(plan);
  absl::StatusOr<NotifySocket> notify = NotifySocket::Open();
  if (!notify.ok()) return Fail(FailedAt::kInputs, notify.status());
  SupervisorOptions options = SupervisorOptionsOf(flags, loaded.config);
  options.processes = ProcessesOf(plan);
  plan.controller_env = {
      {"NOTIFY_SOCKET", notify->name()},
      {"WATCHDOG_USEC", std::to_string(absl::ToInt64Microseconds(options.watchdog))}};
  ProcessTable table(std::move(plan));
  const PauseDetector pauses;
  std::optional<LaunchSign> sign;
  if (table.plan().elastic && slurm && slurm->has_agents()) {
    sign.emplace(table.plan().agents.shared_file);
  }
  const int code = RunUntilDone(options, &table, &*notify);
  sign.reset();
  return slurm ? slurm->End(code, table.plan()) : code;
}

int Launch(const Flags& flags) {
  auto loaded = LoadConfig(flags.config, flags.overrides);
  if (!loaded.ok()) return Fail(FailedAt::kConfig, loaded.status());
  const absl::Status checked =
      CheckConfig(*loaded, std::array<ConfigCheck, 2>{CheckAdvantageEstimator, CheckReward});
  if (!flags.dry_run) {  // a dry run is the controller's, which prints them
    for (const std::string& notice : loaded->notices)
      std::fputs(("note: " + notice + "\n").c_str(), stderr);
  }
  const v1::Config& config = loaded->config;
  if (!checked.ok()) return Fail(FailedAt::kConfig, checked);
  const absl::Status interface = CheckInterface(flags, config);
  if (!interface.ok()) return Fail(FailedAt::kConfig, interface);
  // A model that no worker can run is refused before anything is started for it.
  const auto model = CheckModel(config.model().path(), config.rollout().max_model_len());
  if (!model.ok()) return Fail(FailedAt::kInputs, model.status());
  const absl::Status place = CheckCluster(config.cluster());
  if (!place.ok()) return Fail(FailedAt::kConfig, place);
  std::optional<SlurmLaunch> slurm;
  if (flags.slurm) {
    auto created = SlurmLaunch::Create(config, flags.interface);
    if (!created.ok()) return Fail(FailedAt::kConfig, created.status());
    slurm = *std::move(created);
  }
  if (flags.dry_run) return DryRun(flags);
  return Start(flags, *std::move(loaded), std::move(slurm));
}

}  // namespace
}  // namespace tandem

int main(int argc, char** argv) {
  // A reader of its output that goes away must not end the run.
  std::signal(SIGPIPE, SIG_IGN);
  tandem::BlockSignals(tandem::SignalReader::kLauncher);
  tandem::KeepOthersFromWriting();
  tandem::Flags flags;
  std::error_code error;
  flags.bin_dir = std::filesystem::read_symlink("/proc/self/exe", error).parent_path().string();
  CLI::App app(
      "Starts and supervises a controller with its trainers and rollouts: on this host, or by "
      "agents on others.");
  app.set_version_flag("--version", tandem::BuildText(tandem::ThisBuild(), "tandem-launcher"));
  app.add_option("--config", flags.config, "YAML file")->required();
  app.add_option("--set,OVERRIDES", flags.overrides,
                 "key=value, any number, before or after --config; --set itself may be omitted");
  app.add_option("--bin-dir", flags.bin_dir, "where tandem-controller and the workers are");
  const CLI::Option* const grace =
      app.add_option("--grace", flags.grace_seconds,
                     "seconds from asking to stop to killing, on the hosts of agents too")
          ->check(CLI::NonNegativeNumber)
          ->capture_default_str();
  app.add_option("--stop-grace", flags.stop_grace_seconds,
                 "seconds that a controller has after Ctrl-C to finish a call and save")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  app.add_flag("--dry-run", flags.dry_run,
               "check config, model, data and run directory, plan the memory, and start nothing");
  app.add_option("--log", flags.log,
                 "what stdout has: text for people, or json, one object per line for programs "
                 "(docs/reference/log_json.md)")
      ->check(CLI::IsMember({"text", "json"}))
      ->capture_default_str();
  CLI::Option* const slurm = app.add_flag(
      "--slurm", flags.slurm,
      "within a job of Slurm's: start an agent on each of its nodes, and begin the job anew where "
      "it ends before the run does (docs/guides/clusters.md)");
  app.add_option("--agents", flags.agents,
                 "start the controller alone, and say which agents to start on so many hosts")
      ->check(CLI::Range(1, 10'000))
      ->excludes(slurm);
  app.add_option("--interface", flags.interface,
                 "network interface of every host, by which the others reach it, such as ib0; "
                 "where agents start the workers");
  app.add_flag("--start-paused", flags.start_paused, "train only what tandemctl asks for");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    const int code = app.exit(e);
    return code == 0 ? 0 : tandem::kExitRefused;
  }
  flags.has_grace = grace->count() > 0;
  return tandem::Launch(flags);
}
