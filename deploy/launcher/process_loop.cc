#include "deploy/launcher/process_loop.h"

#include <algorithm>
#include <ctime>

#include <fmt/format.h>
#include <signal.h>
#include <sys/prctl.h>

#include "common/base/clock.h"
#include "deploy/launcher/messages.h"

namespace tandem {
namespace {

sigset_t HandledSignals(SignalReader reader) {
  sigset_t set;
  sigemptyset(&set);
  for (int signal : {SIGCHLD, SIGINT, SIGTERM, SIGHUP}) sigaddset(&set, signal);
  if (reader == SignalReader::kLauncher) sigaddset(&set, SIGUSR1);
  return set;
}

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

ProcessLoop::ProcessLoop(SignalReader reader,
                         absl::Duration longest_wait,
                         const SupervisorOptions& options,
                         ProcessTable* table)
    : reader_(reader), longest_wait_(longest_wait), supervisor_(options), table_(table) {}

int ProcessLoop::Supervise() {
  Do(supervisor_.Start(RealClock().Now()));
  OnStart();
  while (!supervisor_.done()) {
    const absl::Duration until_due = supervisor_.NextDeadline() - RealClock().Now();
    const int signal = WaitForSignal(reader_, std::min(until_due, longest_wait_));
    if (signal == SIGINT || signal == SIGTERM || signal == SIGHUP) {
      Do(supervisor_.OnStopRequest(signal, RealClock().Now()));
    }
    BeforeReaping(signal);
    while (const auto dead = table_->Reap()) {
      Do(supervisor_.OnExit(dead->first, dead->second, RealClock().Now()));
    }
    AfterReaping();
    Do(supervisor_.OnTick(RealClock().Now()));
    AtEndOfTurn();
  }
  return code_;
}

void ProcessLoop::Say(const std::string& text) const { PrintAs(Name(), text); }

void ProcessLoop::SayEnd(const Action& action) const {
  if (code_ != 0) Say(fmt::format("{}; exit code {}", action.text, code_));
}

void ProcessLoop::Do(const Actions& actions) {
  for (const Action& action : actions) Take(action);
}

void ProcessLoop::Take(const Action& action) {
  switch (action.kind) {
    case Action::Kind::kSpawn:
      return Spawn(action.id);
    case Action::Kind::kTerminate:
      return table_->Signal(action.id, SIGTERM);
    case Action::Kind::kKill:
      return table_->Signal(action.id, SIGKILL);
    case Action::Kind::kSay:
      return PrintSay(Name(), action, *table_);
    case Action::Kind::kReport:
      return OnReport(action);
    case Action::Kind::kFinish:
      return Finish(action);
  }
}

void ProcessLoop::Spawn(const ProcessId& id) {
  const absl::Status spawned = table_->Spawn(id);
  if (spawned.ok()) return;
  Say(fmt::format("{}: {}", id.ToString(), std::string(spawned.message())));
  Do(supervisor_.OnExit(id, {.code = kExitRefused}, RealClock().Now()));
}

void ProcessLoop::Finish(const Action& action) {
  code_ = action.code;
  if (!table_->KillStrays()) Say("Killed a process that a worker had started and left running.");
  OnFinish(action);
}

}  // namespace tandem
