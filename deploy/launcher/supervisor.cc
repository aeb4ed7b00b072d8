#include "deploy/launcher/supervisor.h"

#include <algorithm>
#include <cstring>

#include <fmt/format.h>

#include "common/base/clock.h"

namespace tandem {
namespace {

constexpr ProcessId kController{Role::kController, 0};

void Say(const std::string& text, Actions* actions) {
  actions->push_back({.kind = Action::Kind::kSay, .text = text});
}

// Prints `text` and the last lines that the process logged.
void Blame(ProcessId id, const std::string& text, Actions* actions) {
  actions->push_back({.kind = Action::Kind::kSay, .id = id, .text = text, .blame = true});
}

std::string Died(ProcessId id, ProcessExit exit) {
  return fmt::format("{} died: {}", id.ToString(), exit.ToString());
}

}  // namespace

const char* RoleName(Role role) {
  switch (role) {
    case Role::kController:
      return "controller";
    case Role::kTrainer:
      return "trainer";
    case Role::kRollout:
      return "rollout";
  }
  return "?";
}

std::string ProcessId::ToString() const {
  return role == Role::kController ? RoleName(role) : fmt::format("{} {}", RoleName(role), rank);
}

std::string ProcessExit::ToString() const {
  if (signal != 0) return fmt::format("signal {} ({})", signal, strsignal(signal));
  return fmt::format("exit code {}", code);
}

Actions Supervisor::Start(Instant now) {
  std::vector<ProcessId> ids = {kController};
  for (int rank = 0; rank < std::max(options_.trainers, options_.rollouts); ++rank) {
    if (rank < options_.trainers) ids.push_back({Role::kTrainer, rank});
    if (rank < options_.rollouts) ids.push_back({Role::kRollout, rank});
  }
  Actions actions;
  for (const ProcessId& id : ids) {
    processes_[id].alive = true;
    actions.push_back({.kind = Action::Kind::kSpawn, .id = id});
  }
  alive_at_ = now;
  return actions;
}

Actions Supervisor::OnExit(ProcessId id, ProcessExit exit, Instant now) {
  Actions actions;
  processes_[id].alive = false;
  if (id.role == Role::kController) alive_at_ = Instant::InfiniteFuture();
  if (state_ == State::kRunning) {
    if (id.role == Role::kController) {
      OnControllerExit(exit, now, &actions);
    } else {
      OnWorkerExit(id, exit, now, &actions);
    }
  } else if (state_ == State::kStoppingController && id.role == Role::kController) {
    StopWorkers(now, &actions);
  }
  FinishIfAllEnded(&actions);
  return actions;
}

void Supervisor::OnControllerExit(ProcessExit exit, Instant now, Actions* actions) {
  if (exit.signal == 0 && exit.code == kExitDone) {
    StopWorkers(now, actions);
  } else if (exit.signal != 0 || exit.code == kExitRestart) {
    Restart(kController, Died(kController, exit), now, actions);
  } else {
    // The controller ended by its own decision and logged the reason.
    Blame(kController, "The controller failed: " + exit.ToString(), actions);
    GiveUp(exit.code, "The controller failed", now, actions);
  }
}

void Supervisor::OnWorkerExit(ProcessId id, ProcessExit exit, Instant now, Actions* actions) {
  if (exit.signal != 0) return Restart(id, Died(id, exit), now, actions);
  switch (exit.code) {
    case kExitDone:
      // The controller told it to end and should end soon; if it does not, the worker is missing.
      processes_[id].let_go = true;
      processes_[id].restart_at = now + options_.leave_time;
      return;
    case kExitRefused:
    case 126:  // the shell's and SpawnChild's codes for a program that cannot be run
    case 127:
      Blame(id, fmt::format("{} cannot run: {}", id.ToString(), exit.ToString()), actions);
      return GiveUp(kExitRefused, id.ToString() + " cannot run", now, actions);
    default:
      return Restart(id, Died(id, exit), now, actions);
  }
}

void Supervisor::Restart(ProcessId id, const std::string& died, Instant now, Actions* actions) {
  std::deque<Instant>& restarts = restarts_[id.role];
  while (!restarts.empty() && now - restarts.front() > options_.restart_window) {
    restarts.pop_front();
  }
  if (std::ssize(restarts) >= options_.max_restarts) {
    const std::string why =
        fmt::format("{}, and all restarts of a {} are used (cluster.max_restarts = {})", died,
                    RoleName(id.role), options_.max_restarts);
    Blame(id, why, actions);
    return GiveUp(kExitInternal, why, now, actions);
  }
  restarts.push_back(now);
  Process& process = processes_[id];
  process.let_go = false;
  process.restart_at = process.deaths++ == 0 ? now : now + options_.restart_delay;
  Blame(id, fmt::format("{}; restart {} of {}", died, restarts.size(), options_.max_restarts),
        actions);
  const Actions due = OnTick(now);
  actions->insert(actions->end(), due.begin(), due.end());
}

void Supervisor::GiveUp(int code, const std::string& why, Instant now, Actions* actions) {
  code_ = code;
  why_ = why;
  if (processes_[kController].alive) {
    state_ = State::kStoppingController;
    kill_at_ = now + options_.grace;
    actions->push_back({.kind = Action::Kind::kTerminate, .id = kController});
  } else {
    StopWorkers(now, actions);
  }
}

void Supervisor::StopWorkers(Instant now, Actions* actions) {
  state_ = State::kStoppingWorkers;
  kill_at_ = now + options_.grace;
  for (const auto& [id, process] : processes_) {
    if (process.alive) actions->push_back({.kind = Action::Kind::kTerminate, .id = id});
  }
}

Actions Supervisor::OnStopRequest(int signal, Instant now) {
  Actions actions;
  if (state_ == State::kDone) return actions;
  if (state_ != State::kRunning) {
    Say(processes_[kController].alive
            ? "Killing the remaining processes. Progress since the last checkpoint is lost."
            : "Killing the remaining processes.",
        &actions);
    KillAll(&actions);
  } else {
    Say("Stopping; finished steps that no checkpoint has are saved first. Press Ctrl-C again to "
        "quit without saving.",
        &actions);
    GiveUp(128 + signal, "Stopped", now, &actions);
    if (state_ == State::kStoppingController) kill_at_ = now + options_.stop_grace;
  }
  FinishIfAllEnded(&actions);
  return actions;
}

Actions Supervisor::OnTick(Instant now) {
  Actions actions;
  if (state_ == State::kRunning) {
    KillSilentController(now, &actions);
    StartDue(now, &actions);
  } else if (now >= kill_at_ && state_ != State::kDone) {
    Say(processes_[kController].alive ? "Grace period expired: killing the remaining processes. "
                                        "Progress since the last checkpoint is lost."
                                      : "Grace period expired: killing the remaining processes.",
        &actions);
    KillAll(&actions);
  }
  return actions;
}

void Supervisor::KillSilentController(Instant now, Actions* actions) {
  if (!processes_[kController].alive || now < WatchdogDeadline()) return;
  Blame(kController,
        fmt::format("The controller has given no sign of life for {} "
                    "(cluster.watchdog_seconds): killing it",
                    absl::FormatDuration(now - alive_at_)),
        actions);
  alive_at_ = Instant::InfiniteFuture();
  actions->push_back({.kind = Action::Kind::kKill, .id = kController});
}

void Supervisor::StartDue(Instant now, Actions* actions) {
  for (auto& [id, process] : processes_) {
    if (process.alive || process.restart_at > now) continue;
    if (process.let_go) {
      // This counts as a restart, so that a worker that keeps exiting ends the run.
      return Restart(id, id.ToString() + " exited while the run continues", now, actions);
    }
    process.alive = true;
    process.restart_at = Instant::InfiniteFuture();
    if (id.role == Role::kController) alive_at_ = now;
    actions->push_back({.kind = Action::Kind::kSpawn, .id = id});
  }
}

void Supervisor::KillAll(Actions* actions) {
  state_ = State::kStoppingWorkers;
  kill_at_ = Instant::InfiniteFuture();
  for (const auto& [id, process] : processes_) {
    if (process.alive) actions->push_back({.kind = Action::Kind::kKill, .id = id});
  }
}

bool Supervisor::AnyAlive() const {
  return std::any_of(processes_.begin(), processes_.end(),
                     [](const auto& entry) { return entry.second.alive; });
}

void Supervisor::FinishIfAllEnded(Actions* actions) {
  if (state_ != State::kStoppingWorkers || AnyAlive()) return;
  state_ = State::kDone;
  kill_at_ = Instant::InfiniteFuture();
  actions->push_back({.kind = Action::Kind::kFinish, .text = why_, .code = code_});
}

Instant Supervisor::NextDeadline() const {
  if (state_ == State::kDone) return Instant::InfiniteFuture();
  if (state_ != State::kRunning) return kill_at_;
  Instant next = WatchdogDeadline();
  for (const auto& [id, process] : processes_) {
    if (!process.alive) next = std::min(next, process.restart_at);
  }
  return next;
}

}  // namespace tandem
