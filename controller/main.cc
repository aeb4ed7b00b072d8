// tandem-controller: loads and checks a configuration, waits for the workers, trains.
#include <array>
#include <atomic>
#include <csignal>
#include <memory>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <unistd.h>

#include "common/base/build_info.h"
#include "common/base/log.h"
#include "common/base/status.h"
#include "common/config/check.h"
#include "common/config/loaded_config.h"
#include "common/net/grpc_status.h"
#include "common/net/protocol.h"
#include "common/net/start_checks.h"
#include "common/process/exit_code.h"
#include "common/process/fault_injection.h"
#include "common/process/files/descriptor_limit.h"
#include "common/process/files/private_files.h"
#include "common/process/pause_detector.h"
#include "common/process/threads.h"
#include "controller/algorithm/advantage_estimator.h"
#include "controller/assembly/dry_run.h"
#include "controller/assembly/run_assembly.h"
#include "controller/assembly/run_options.h"
#include "controller/assembly/run_outputs.h"
#include "controller/reward/check_reward.h"
#include "controller/run/loop_watch.h"

namespace tandem {
namespace {

struct Flags {
  std::string config;
  std::vector<std::string> overrides;
  std::string run_dir;
  std::string listen;
  std::string launch_id;
  std::string node;
  bool start_paused = false;
  bool dry_run = false;
  std::string log = "text";

  bool log_json() const { return log == "json"; }
};

int ParseFlags(int argc, char** argv, Flags* flags) {
  CLI::App app("Tandem controller: drives trainers and rollouts through a training run.");
  app.set_version_flag("--version", BuildText(ThisBuild(), "tandem-controller"));
  app.add_option("--config", flags->config, "YAML file with the run's configuration");
  app.add_option("--set,OVERRIDES", flags->overrides,
                 "key=value, overrides the file; may be repeated. --set itself may be omitted");
  app.add_option("--run-dir", flags->run_dir, "overrides cluster.run_dir");
  app.add_option("--listen", flags->listen, "overrides cluster.listen");
  app.add_option("--node", flags->node,
                 "name of this host, as its workers have it; default: SLURMD_NODENAME, else the "
                 "host's name");
  app.add_flag("--start-paused", flags->start_paused,
               "train only what the API asks for, and run until stopped");
  app.add_flag("--dry-run", flags->dry_run,
               "check config, model, data and run directory, plan the memory, and start nothing");
  app.add_option("--log", flags->log,
                 "what stdout has: text for people, or json, one object per line for programs "
                 "(docs/reference/log_json.md)")
      ->check(CLI::IsMember({"text", "json"}))
      ->capture_default_str();
  app.add_option("--launch-id", flags->launch_id,
                 "equal for all starts of one launch: a restart resumes from the newest "
                 "checkpoint, independent of trainer.resume_mode");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    const int code = app.exit(error);
    return code == 0 ? -1 : kExitRefused;
  }
  if (!flags->run_dir.empty()) flags->overrides.push_back("cluster.run_dir=" + flags->run_dir);
  if (!flags->listen.empty()) flags->overrides.push_back("cluster.listen=" + flags->listen);
  return kExitDone;
}

// The configuration of a start or of a dry run, with what it needs of this host checked.
absl::StatusOr<v1::Config> ReadConfig(const Flags& flags) {
  TANDEM_ASSIGN_OR_RETURN(LoadedConfig loaded, LoadConfig(flags.config, flags.overrides));
  const absl::Status checked =
      CheckConfig(loaded, std::array<ConfigCheck, 2>{CheckAdvantageEstimator, CheckReward});
  if (flags.launch_id.empty()) {  // otherwise the launcher has printed them
    for (const std::string& notice : loaded.notices) LogInfo("Note: {}", notice);
  }
  TANDEM_RETURN_IF_ERROR(checked);
  if (flags.launch_id.empty()) {  // otherwise the launcher has checked it
    TANDEM_RETURN_IF_ERROR(CheckStartPlace({.run_dir = loaded.config.cluster().run_dir(),
                                            .listen = loaded.config.cluster().listen(),
                                            .security = MakeRpcSecurity(loaded.config)}));
  }
  return std::move(loaded.config);
}

int Refuse(FailedAt stage, const absl::Status& status) {
  LogError("{}", std::string(status.message()));
  return ExitCodeAt(stage, status);
}

// Handles SIGINT and SIGTERM in a thread of its own: the first signal stops the run with a
// checkpoint, the second ends the process at once.
class Signals {
 public:
  Signals() {
    sigemptyset(&set_);
    sigaddset(&set_, SIGINT);
    sigaddset(&set_, SIGTERM);
    sigaddset(&set_, SIGUSR1);  // sent by End() to stop the thread
    pthread_sigmask(SIG_BLOCK, &set_, nullptr);
  }
  void Watch(Assembly& assembly) {
    thread_ = NamedThread("signals", [this, &assembly] {
      for (int signal = 0; sigwait(&set_, &signal) == 0 && signal != SIGUSR1;) {
        if (received_ != 0) _exit(128 + signal);
        received_ = signal;
        LogInfo(
            "Stopping; finished steps that no checkpoint has are saved first. Press Ctrl-C again "
            "to quit without saving.");
        assembly.StopNow();
      }
    });
  }
  void End() {
    kill(getpid(), SIGUSR1);
    thread_.Join();
  }
  int received() const { return received_; }

 private:
  sigset_t set_;
  std::atomic<int> received_ = 0;
  NamedThread thread_;
};

int CheckAndPlan(const Flags& flags) {
  const absl::StatusOr<v1::Config> config = ReadConfig(flags);
  if (!config.ok()) return Refuse(FailedAt::kConfig, config.status());
  const auto progress = MakeShownProgress(*config, flags.log_json());
  const absl::StatusOr<bool> fits = DryRun(*config, *progress);
  if (!fits.ok()) return Refuse(FailedAt::kInputs, fits.status());
  return *fits ? kExitDone : kExitDoesNotFit;
}

int Run(const Flags& flags) {
  Signals signals;
  const PauseDetector pauses;
  const SignsOfLife signs;
  absl::StatusOr<v1::Config> config = ReadConfig(flags);
  if (!config.ok()) return Refuse(FailedAt::kConfig, config.status());
  const absl::Status descriptors = CheckDescriptors(
      config->cluster().trainers() + config->cluster().rollouts(), RaiseDescriptorLimit());
  if (!descriptors.ok()) return Refuse(FailedAt::kConfig, descriptors);
  absl::StatusOr<HostId> host = ThisHost(flags.node);
  if (!host.ok()) return Refuse(FailedAt::kConfig, host.status());
  const auto assembly =
      Assembly::Create({.config = *std::move(config),
                        .start = flags.start_paused ? StartMode::kPaused : StartMode::kTrain,
                        .launch_id = flags.launch_id,
                        .build = ThisBuild(),
                        .host = *std::move(host),
                        .log_json = flags.log_json(),
                        .signs = &signs});
  if (!assembly.ok()) return Refuse(FailedAt::kInputs, assembly.status());
  signals.Watch(**assembly);
  const absl::Status status = (*assembly)->Run();
  signals.End();
  // A run that had made all its steps and only waited for commands was not interrupted.
  const bool interrupted = signals.received() != 0 && !((*assembly)->completed() && status.ok());
  if (interrupted && (status.ok() || absl::IsCancelled(status))) {
    return signals.received() == SIGINT ? 128 + SIGINT : kExitDone;
  }
  if (!status.ok()) LogError("The run failed: {}", Describe(status));
  return ExitCodeAt((*assembly)->failed_at(), status);
}

}  // namespace
}  // namespace tandem

int main(int argc, char** argv) {
  // A reader of its output that goes away must not end the run.
  std::signal(SIGPIPE, SIG_IGN);
  tandem::KeepOthersFromWriting();
  tandem::Flags flags;
  const int parsed = tandem::ParseFlags(argc, argv, &flags);
  if (parsed != tandem::kExitDone) return parsed < 0 ? tandem::kExitDone : parsed;
  tandem::InitLog("controller", -1);
  tandem::InitFaultPoints("controller", 0);
  if (flags.dry_run) return tandem::CheckAndPlan(flags);
  tandem::FaultPoint("start");
  const int code = tandem::Run(flags);
  tandem::FaultPoint("end");
  return code;
}
