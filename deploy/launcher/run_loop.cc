#include "deploy/launcher/run_loop.h"

#include <utility>

#include <fmt/format.h>
#include <signal.h>
#include <sys/prctl.h>

#include "common/base/clock.h"
#include "common/process/files/dead_sockets.h"
#include "common/process/service_notifier.h"
#include "deploy/launcher/messages.h"

namespace tandem {
namespace {

constexpr absl::Duration kLookForHung = absl::Milliseconds(500);

sigset_t HandledSignals(SignalReader reader) {
  sigset_t set;
  sigemptyset(&set);
  for (int signal : {SIGCHLD, SIGINT, SIGTERM, SIGHUP}) sigaddset(&set, signal);
  if (reader == SignalReader::kLauncher) sigaddset(&set, SIGUSR1);
  return set;
}

void Print(const std::string& text) { PrintAs("launcher", text); }

class RunLoop {
 public:
  RunLoop(const SupervisorOptions& options, ProcessTable* table, NotifySocket* notify)
      : supervisor_(options), table_(table), notify_(notify) {}

  int Run() {
    Do(supervisor_.Start(RealClock().Now()));
    own_notifier_.Ready();
    while (!supervisor_.done()) {
      const int signal = Wait();
      if (signal == SIGINT || signal == SIGTERM || signal == SIGHUP) {
        Do(supervisor_.OnStopRequest(signal, RealClock().Now()));
      }
      if (signal == SIGUSR1) OnTimeLimit();
      own_notifier_.KeepAlive();
      // Before the dead are reaped: the last sign of a controller says nothing of its successor.
      if (notify_->TakeSignOfLife()) supervisor_.OnAlive(RealClock().Now());
      for (const ProcessId& id : table_->KillHung()) {
        Print(fmt::format("{} hangs; killed it", id.ToString()));
      }
      while (const auto dead = table_->Reap()) {
        Do(supervisor_.OnExit(dead->first, dead->second, RealClock().Now()));
      }
      Do(supervisor_.OnTick(RealClock().Now()));
    }
    return code_;
  }

 private:
  // Slurm sends it some time before the end of the job. It does not kill what stops already.
  void OnTimeLimit() {
    if (!supervisor_.running()) return;
    Print("SIGUSR1: the time of this job is over soon.");
    Do(supervisor_.OnStopRequest(SIGUSR1, RealClock().Now()));
  }

  // Returns the next signal, or 0 when a deadline or the check for hung workers is due.
  int Wait() {
    return WaitForSignal(SignalReader::kLauncher,
                         std::min(supervisor_.NextDeadline() - RealClock().Now(), kLookForHung));
  }

  void Do(const Actions& actions) {
    for (const Action& action : actions) {
      switch (action.kind) {
        case Action::Kind::kSpawn:
          Spawn(action.id);
          break;
        case Action::Kind::kTerminate:
          table_->Signal(action.id, SIGTERM);
          break;
        case Action::Kind::kKill:
          table_->Signal(action.id, SIGKILL);
          break;
        case Action::Kind::kSay:
          PrintSay("launcher", action, *table_);
          break;
        case Action::Kind::kReport:  // an agent's alone
          break;
        case Action::Kind::kFinish:
          Finish(action);
          break;
      }
    }
  }

  void Spawn(const ProcessId& id) {
    const absl::Status spawned = table_->Spawn(id);
    if (spawned.ok()) return;
    Print(fmt::format("{}: {}", id.ToString(), std::string(spawned.message())));
    Do(supervisor_.OnExit(id, {.code = kExitRefused}, RealClock().Now()));
  }

  void Finish(const Action& action) {
    code_ = action.code;
    if (!table_->KillStrays())
      Print("Killed a process that a worker had started and left running.");
    const LaunchPlan& plan = table_->plan();
    RemoveDeadSockets(plan.run_dir,
                      [&plan](const std::string& name) { return IsSocketOf(plan, name); });
    // The user stopped what had only waited for more commands.
    if (WasStopped() && FinishedByThisLaunch(table_->plan())) code_ = kExitDone;
    if (code_ != 0) Print(fmt::format("{}; exit code {}", action.text, code_));
    if (WasStopped()) {
      if (const std::string hint = ResumeHint(table_->plan()); !hint.empty()) Print(hint);
    }
  }

  bool WasStopped() const {
    return code_ == 128 + SIGINT || code_ == 128 + SIGTERM || code_ == 128 + SIGUSR1;
  }

  Supervisor supervisor_;
  ProcessTable* table_;
  NotifySocket* notify_;
  ServiceNotifier own_notifier_;  // to systemd, where that started the launcher
  int code_ = 0;
};

}  // namespace

void BlockSignals(SignalReader reader) {
  const sigset_t set = HandledSignals(reader);
  sigprocmask(SIG_BLOCK, &set, nullptr);
  // Orphaned descendants become children of the launcher instead of init, so that it can kill them.
  prctl(PR_SET_CHILD_SUBREAPER, 1);
}

int WaitForSignal(SignalReader reader, absl::Duration longest) {
  const sigset_t set = HandledSignals(reader);
  const timespec timeout = absl::ToTimespec(std::max(longest, absl::ZeroDuration()));
  return std::max(sigtimedwait(&set, nullptr, &timeout), 0);
}

int RunUntilDone(const SupervisorOptions& options, ProcessTable* table, NotifySocket* notify) {
  return RunLoop(options, table, notify).Run();
}

}  // namespace tandem
