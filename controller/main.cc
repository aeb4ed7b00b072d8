// tandem-controller: loads and checks a configuration, waits for the workers, trains.
#include <atomic>
#include <csignal>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <unistd.h>

#include "common/base/fault_point.h"
#include "common/base/log.h"
#include "common/base/named_thread.h"
#include "common/cluster/protocol.h"
#include "common/config/config.h"
#include "common/rpc/status_convert.h"
#include "controller/assembly.h"

namespace tandem {
namespace {

struct Flags {
  std::string config;
  std::vector<std::string> overrides;
  std::string run_dir;
  std::string listen;
  bool start_paused = false;
};

int ParseFlags(int argc, char** argv, Flags* flags) {
  CLI::App app("Tandem controller: drives trainers and rollouts through a training run.");
  app.add_option("--config", flags->config, "YAML file with the run's configuration");
  app.add_option("--set", flags->overrides, "key=value, over the file; may be repeated")
      ->allow_extra_args(false);
  app.add_option("--run-dir", flags->run_dir, "over cluster.run_dir");
  app.add_option("--listen", flags->listen, "over cluster.listen");
  app.add_flag("--start-paused", flags->start_paused,
               "train only what is asked for over the API, and stay until stopped");
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

absl::StatusOr<std::unique_ptr<Assembly>> Prepare(const Flags& flags) {
  absl::StatusOr<LoadedConfig> loaded = LoadConfig(flags.config, flags.overrides);
  if (!loaded.ok()) return loaded.status();
  for (const std::string& notice : loaded->notices) spdlog::info("{}", notice);
  if (absl::Status status = Validate(loaded->config, loaded->origins); !status.ok()) return status;
  return Assembly::Create({.config = std::move(loaded->config),
                           .start = flags.start_paused ? StartMode::kPaused : StartMode::kTrain});
}

int ExitCodeOf(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kOk:
      return kExitDone;
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kAlreadyExists:
    case absl::StatusCode::kNotFound:
      return kExitRefused;
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kDeadlineExceeded:
      return kExitControllerLost;
    default:
      return kExitInternal;
  }
}

// SIGINT and SIGTERM, taken by a thread: the first asks the run to end, the second ends the
// process.
class Signals {
 public:
  Signals() {
    sigemptyset(&set_);
    sigaddset(&set_, SIGINT);
    sigaddset(&set_, SIGTERM);
    sigaddset(&set_, SIGUSR1);  // our own: ends the thread
    pthread_sigmask(SIG_BLOCK, &set_, nullptr);
  }
  void Watch(Assembly& assembly) {
    thread_ = NamedThread("signals", [this, &assembly] {
      for (int signal = 0; sigwait(&set_, &signal) == 0 && signal != SIGUSR1;) {
        if (received_ != 0) _exit(128 + signal);
        received_ = signal;
        spdlog::info("stopping: what is finished is saved; once more ends at once");
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

int Run(const Flags& flags) {
  Signals signals;
  absl::StatusOr<std::unique_ptr<Assembly>> assembly = Prepare(flags);
  if (!assembly.ok()) {
    std::cerr << std::string(assembly.status().message()) << std::endl;
    return kExitRefused;
  }
  signals.Watch(**assembly);
  const absl::Status status = (*assembly)->Run();
  signals.End();
  if (signals.received() != 0 && (status.ok() || absl::IsCancelled(status))) {
    return signals.received() == SIGINT ? 128 + SIGINT : kExitDone;
  }
  if (!status.ok()) spdlog::error("the run ended: {}", Describe(status));
  return ExitCodeOf(status);
}

}  // namespace
}  // namespace tandem

int main(int argc, char** argv) {
  tandem::Flags flags;
  const int parsed = tandem::ParseFlags(argc, argv, &flags);
  if (parsed != tandem::kExitDone) return parsed < 0 ? tandem::kExitDone : parsed;
  tandem::InitLog("controller", -1);
  tandem::InitFaultPoints("controller", 0);
  return tandem::Run(flags);
}
