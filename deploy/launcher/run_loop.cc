#include "deploy/launcher/run_loop.h"

#include <cstdio>

#include <fmt/format.h>
#include <signal.h>
#include <sys/prctl.h>

#include "common/base/clock.h"
#include "common/process/files/dead_sockets.h"
#include "common/process/service_notifier.h"

namespace tandem {
namespace {

constexpr int kBlameLines = 12;
constexpr absl::Duration kLookForHung = absl::Milliseconds(500);

sigset_t HandledSignals() {
  sigset_t set;
  sigemptyset(&set);
  for (int signal : {SIGCHLD, SIGINT, SIGTERM, SIGHUP}) sigaddset(&set, signal);
  return set;
}

// Does not fail when stderr is closed: fmt::print would throw.
void Print(const std::string& text) { std::fputs(("launcher: " + text + "\n").c_str(), stderr); }

void PrintSay(const Action& action, const ProcessTable& table) {
  Print(action.text);
  if (!action.blame) return;
  const std::string path = LogPath(table.plan(), action.id);
  const std::string last = table.LastLogLines(action.id, kBlameLines);
  if (!last.empty())
    std::fputs(fmt::format("---- last lines of {}\n{}----\n", path, last).c_str(), stderr);
}

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
  // Returns the next signal, or 0 when a deadline or the check for hung workers is due.
  int Wait() {
    const sigset_t set = HandledSignals();
    const absl::Duration left =
        std::min(supervisor_.NextDeadline() - RealClock().Now(), kLookForHung);
    const timespec timeout = absl::ToTimespec(std::max(left, absl::ZeroDuration()));
    return std::max(sigtimedwait(&set, nullptr, &timeout), 0);
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
          PrintSay(action, *table_);
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

  bool WasStopped() const { return code_ == 128 + SIGINT || code_ == 128 + SIGTERM; }

  Supervisor supervisor_;
  ProcessTable* table_;
  NotifySocket* notify_;
  ServiceNotifier own_notifier_;  // to systemd, where that started the launcher
  int code_ = 0;
};

}  // namespace

void BlockSignals() {
  const sigset_t set = HandledSignals();
  sigprocmask(SIG_BLOCK, &set, nullptr);
  // Orphaned descendants become children of the launcher instead of init, so that it can kill them.
  prctl(PR_SET_CHILD_SUBREAPER, 1);
}

int RunUntilDone(const SupervisorOptions& options, ProcessTable* table, NotifySocket* notify) {
  return RunLoop(options, table, notify).Run();
}

}  // namespace tandem
