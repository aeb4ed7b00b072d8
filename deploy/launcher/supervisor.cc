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
    case Role::kAgent:
      return "agent";
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

Supervisor::Supervisor(const SupervisorOptions& options)
    : options_(options),
      is_agent_(std::find(options.processes.begin(), options.processes.end(), kController) ==
                options.processes.end()) {}

Actions Supervisor::Start(Instant now) {
  Actions actions;
  for (const ProcessId& id : options_.processes) {
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
    if (processes_[id].dismissed) {
      OnDismissedExit(id, &actions);
    } else if (id.role == Role::kController) {
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
    GiveUp(kController, exit.code, "The controller failed", now, actions);
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
    case kExitPeerLost:
      if (!is_agent_) return Restart(id, Died(id, exit), now, actions);
      // Without a controller its successor would end the same way.
      processes_[id].lost_controller = true;
      processes_[id].as_agent = now - alive_at_ >= options_.silence;
      processes_[id].restart_at = now;
      return;
    case kExitRefused:
    case 126:  // the shell's and SpawnChild's codes for a program that cannot be run
    case 127:
      Blame(id, fmt::format("{} cannot run: {}", id.ToString(), exit.ToString()), actions);
      // Once it ran: what it misses now is missing on that node alone.
      if (processes_[id].deaths > 0 && MayStayAway(id)) return StayAway(id, now, actions);
      return GiveUp(id, kExitRefused, id.ToString() + " cannot run", now, actions);
    case kExitInternal:
    case kExitIoError:
      if (id.role != Role::kAgent) return Restart(id, Died(id, exit), now, actions);
      // It has ended by its own decision, as a controller does, and its successor would too.
      Blame(id, fmt::format("{} failed: {}", id.ToString(), exit.ToString()), actions);
      if (processes_[id].deaths > 0 && MayStayAway(id)) return StayAway(id, now, actions);
      return GiveUp(id, exit.code, id.ToString() + " failed", now, actions);
    default:
      return Restart(id, Died(id, exit), now, actions);
  }
}

void Supervisor::OnDismissedExit(ProcessId id, Actions* actions) {
  Process& process = processes_[id];
  if (!process.wanted) {
    processes_.erase(id);
    return;
  }
  // It was ordered again while it ended.
  process = {.alive = true};
  actions->push_back({.kind = Action::Kind::kSpawn, .id = id});
}

void Supervisor::Restart(ProcessId id, const std::string& died, Instant now, Actions* actions) {
  std::deque<Instant>& restarts = restarts_[id.role];
  while (!restarts.empty() && now - restarts.front() > options_.restart_window) {
    restarts.pop_front();
  }
  if (std::ssize(restarts) >= options_.max_restarts) {
    const std::string why =
        fmt::format("{}, and all restarts of {} {} are used (cluster.max_restarts = {})", died,
                    id.role == Role::kAgent ? "an" : "a", RoleName(id.role), options_.max_restarts);
    Blame(id, why, actions);
    if (MayStayAway(id)) return StayAway(id, now, actions);
    const int code = id.role == Role::kAgent ? kExitRestart : kExitInternal;
    return GiveUp(id, code, why, now, actions);
  }
  restarts.push_back(now);
  Process& process = processes_[id];
  process.let_go = process.lost_controller = false;
  process.restart_at = process.deaths++ == 0 ? now : now + options_.restart_delay;
  Blame(id, fmt::format("{}; restart {} of {}", died, restarts.size(), options_.max_restarts),
        actions);
  const Actions due = OnTick(now);
  actions->insert(actions->end(), due.begin(), due.end());
}

bool Supervisor::MayStayAway(ProcessId id) const {
  return options_.agents_may_stay_away && id.role == Role::kAgent &&
         std::any_of(processes_.begin(), processes_.end(), [](const auto& entry) {
           return entry.first.role == Role::kAgent && entry.second.alive;
         });
}

void Supervisor::StayAway(ProcessId id, Instant now, Actions* actions) {
  processes_[id].let_go = processes_[id].lost_controller = false;
  processes_[id].restart_at = now + options_.restart_window;
  Say("The run goes on without " + id.ToString() + " for now.", actions);
}

void Supervisor::GiveUp(
    ProcessId id, int code, const std::string& why, Instant now, Actions* actions) {
  code_ = code;
  why_ = why;
  if (is_agent_) {
    state_ = State::kStoppingController;
    kill_at_ = now + options_.grace;
    actions->push_back({.kind = Action::Kind::kReport, .id = id, .text = why, .code = code});
  } else if (IsControllerAlive()) {
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
  for (auto& [id, process] : processes_) {
    if (!process.alive) continue;
    if (id.role == Role::kAgent) {
      process.terminate_at = now + options_.leave_time;
      kill_at_ = process.terminate_at + options_.grace;
    } else {
      actions->push_back({.kind = Action::Kind::kTerminate, .id = id});
    }
  }
}

void Supervisor::TerminateAgents(Instant now, Actions* actions) {
  for (auto& [id, process] : processes_) {
    if (!process.alive || now < process.terminate_at) continue;
    process.terminate_at = Instant::InfiniteFuture();
    Say(id.ToString() + " has not ended with the controller: stopping it", actions);
    actions->push_back({.kind = Action::Kind::kTerminate, .id = id});
  }
}

Actions Supervisor::OnOrders(const std::vector<ProcessId>& processes, Instant now) {
  Actions actions;
  if (state_ != State::kRunning) return actions;
  for (auto it = processes_.begin(); it != processes_.end();) {
    auto& [id, process] = *it;
    const bool wanted = std::find(processes.begin(), processes.end(), id) != processes.end();
    if (!wanted && !process.alive) {
      it = processes_.erase(it);
      continue;
    }
    process.wanted = wanted;
    if (!wanted && !process.dismissed) {
      process.dismissed = true;
      process.kill_at = now + options_.grace;
      actions.push_back({.kind = Action::Kind::kTerminate, .id = id});
    }
    ++it;
  }
  for (const ProcessId& id : processes) {
    if (processes_.contains(id)) continue;
    processes_[id].alive = true;
    actions.push_back({.kind = Action::Kind::kSpawn, .id = id});
  }
  return actions;
}

Actions Supervisor::OnRunOver(int code, const std::string& why, Instant now) {
  Actions actions;
  if (state_ == State::kRunning) {
    code_ = code;
    why_ = why;
  }
  if (state_ == State::kRunning || state_ == State::kStoppingController) {
    StopWorkers(now, &actions);
  }
  FinishIfAllEnded(&actions);
  return actions;
}

Actions Supervisor::OnStopRequest(int signal, Instant now) {
  Actions actions;
  if (state_ == State::kDone) return actions;
  if (state_ != State::kRunning) {
    Say(IsControllerAlive()
            ? "Killing the remaining processes. Progress since the last checkpoint is lost."
            : "Killing the remaining processes.",
        &actions);
    KillAll(&actions);
  } else if (is_agent_) {
    Say("Stopping the workers of this host.", &actions);
    return OnRunOver(128 + signal, "Stopped", now);
  } else {
    Say("Stopping; finished steps that no checkpoint has are saved first. Press Ctrl-C again to "
        "quit without saving.",
        &actions);
    GiveUp(kController, 128 + signal, "Stopped", now, &actions);
    if (state_ == State::kStoppingController) kill_at_ = now + options_.stop_grace;
  }
  FinishIfAllEnded(&actions);
  return actions;
}

Actions Supervisor::OnTick(Instant now) {
  Actions actions;
  if (state_ == State::kStoppingWorkers) TerminateAgents(now, &actions);
  if (state_ == State::kRunning) {
    KillSilentController(now, &actions);
    KillDismissed(now, &actions);
    StartDue(now, &actions);
    if (state_ == State::kRunning && now >= LetGoDeadline()) {
      StopWorkers(now, &actions);
      FinishIfAllEnded(&actions);
    }
  } else if (is_agent_ && state_ == State::kStoppingController && now >= kill_at_) {
    Say("The controller has not ended the run after the report: stopping the workers of this host.",
        &actions);
    StopWorkers(now, &actions);
    FinishIfAllEnded(&actions);
  } else if (now >= kill_at_ && state_ != State::kDone) {
    Say(IsControllerAlive() ? "Grace period expired: killing the remaining processes. "
                              "Progress since the last checkpoint is lost."
                            : "Grace period expired: killing the remaining processes.",
        &actions);
    KillAll(&actions);
  }
  return actions;
}

void Supervisor::KillSilentController(Instant now, Actions* actions) {
  if (!IsControllerAlive() || now < WatchdogDeadline()) return;
  Blame(kController,
        fmt::format("The controller has given no sign of life for {} "
                    "(cluster.watchdog_seconds): killing it",
                    absl::FormatDuration(now - alive_at_)),
        actions);
  alive_at_ = Instant::InfiniteFuture();
  actions->push_back({.kind = Action::Kind::kKill, .id = kController});
}

void Supervisor::KillDismissed(Instant now, Actions* actions) {
  for (auto& [id, process] : processes_) {
    if (!process.alive || now < process.kill_at) continue;
    process.kill_at = Instant::InfiniteFuture();
    actions->push_back({.kind = Action::Kind::kKill, .id = id});
  }
}

bool Supervisor::IsDue(const Process& process, Instant now) const {
  // Whether a controller of another host is still there, only its answers tell.
  const bool waits = process.lost_controller || (is_agent_ && process.let_go);
  return waits ? process.restart_at < alive_at_ : process.restart_at <= now;
}

Instant Supervisor::LetGoDeadline() const {
  const bool all_let_go = is_agent_ && !processes_.empty() &&
                          std::all_of(processes_.begin(), processes_.end(), [](const auto& entry) {
                            return entry.second.let_go && !entry.second.alive;
                          });
  if (!all_let_go) return Instant::InfiniteFuture();
  Instant deadline = alive_at_ + options_.leave_time;
  for (const auto& [id, process] : processes_) deadline = std::max(deadline, process.restart_at);
  return deadline;
}

void Supervisor::StartDue(Instant now, Actions* actions) {
  for (auto& [id, process] : processes_) {
    if (process.alive || !IsDue(process, now)) continue;
    if (process.let_go) {
      // This counts as a restart, so that a worker that keeps exiting ends the run.
      return Restart(id, id.ToString() + " exited while the run continues", now, actions);
    }
    if (process.lost_controller && process.as_agent) {
      Say(id.ToString() + " had lost the controller, as this agent had: starting it again",
          actions);
      process.lost_controller = false;
    } else if (process.lost_controller) {
      return Restart(id, id.ToString() + " had lost the controller", now, actions);
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

bool Supervisor::IsControllerAlive() const {
  const auto controller = processes_.find(kController);
  return controller != processes_.end() && controller->second.alive;
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
  if (state_ != State::kRunning) {
    Instant next = kill_at_;
    for (const auto& [id, process] : processes_) {
      if (process.alive) next = std::min(next, process.terminate_at);
    }
    return next;
  }
  Instant next =
      std::min(is_agent_ ? Instant::InfiniteFuture() : WatchdogDeadline(), LetGoDeadline());
  for (const auto& [id, process] : processes_) {
    if (process.alive) {
      next = std::min(next, process.kill_at);
    } else if (!process.lost_controller && (!is_agent_ || !process.let_go)) {
      next = std::min(next, process.restart_at);
    }
  }
  return next;
}

}  // namespace tandem
