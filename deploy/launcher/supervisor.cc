#include "deploy/launcher/supervisor.h"

#include <algorithm>
#include <cstring>

#include <fmt/format.h>

namespace tandem {
namespace {

constexpr ProcessId kController{Role::kController, 0};

void Say(const std::string& text, Actions* actions) {
  actions->push_back({.kind = Action::Kind::kSay, .text = text});
}

// Says `text` and shows what the process wrote last.
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

Actions Supervisor::Start(absl::Time) {
  std::vector<ProcessId> ids = {kController};
  for (int rank = 0; rank < options_.pairs; ++rank) {
    ids.push_back({Role::kTrainer, rank});
    ids.push_back({Role::kRollout, rank});
  }
  Actions actions;
  for (const ProcessId& id : ids) {
    processes_[id].alive = true;
    actions.push_back({.kind = Action::Kind::kSpawn, .id = id});
  }
  return actions;
}

Actions Supervisor::OnExit(ProcessId id, ProcessExit exit, absl::Time now) {
  Actions actions;
  processes_[id].alive = false;
  if (state_ == State::kRunning) {
    if (id.role == Role::kController) {
      OnControllerExit(exit, now, &actions);
    } else {
      OnWorkerExit(id, exit, now, &actions);
    }
  } else if (state_ == State::kStoppingController && id.role == Role::kController) {
    StopWorkers(now, &actions);
  }
  FinishIfAllGone(&actions);
  return actions;
}

void Supervisor::OnControllerExit(ProcessExit exit, absl::Time now, Actions* actions) {
  if (exit.signal == 0 && exit.code == kExitDone) {
    StopWorkers(now, actions);
  } else if (exit.signal != 0 || exit.code == kExitRestart) {
    Restart(kController, Died(kController, exit), now, actions);
  } else {
    // It decided to end, and has said why.
    Blame(kController, "the controller gave up: " + exit.ToString(), actions);
    GiveUp(exit.code, "the controller gave up", now, actions);
  }
}

void Supervisor::OnWorkerExit(ProcessId id, ProcessExit exit, absl::Time now, Actions* actions) {
  if (exit.signal != 0) return Restart(id, Died(id, exit), now, actions);
  switch (exit.code) {
    case kExitDone:
      // The controller let it go and should end soon; if not, the worker is missing.
      processes_[id].let_go = true;
      processes_[id].restart_at = now + options_.leave_time;
      return;
    case kExitRefused:
    case 126:  // the shell's and our own codes for a program that cannot be run
    case 127:
      Blame(id, fmt::format("{} cannot run: {}", id.ToString(), exit.ToString()), actions);
      return GiveUp(kExitRefused, id.ToString() + " cannot run", now, actions);
    default:
      return Restart(id, Died(id, exit), now, actions);
  }
}

void Supervisor::Restart(ProcessId id, const std::string& died, absl::Time now, Actions* actions) {
  if (restarts_ >= options_.max_restarts) {
    const std::string why =
        fmt::format("{}, and cluster.max_restarts = {} is used up", died, options_.max_restarts);
    Blame(id, why, actions);
    return GiveUp(kExitInternal, why, now, actions);
  }
  ++restarts_;
  Process& process = processes_[id];
  process.let_go = false;
  process.restart_at = process.deaths++ == 0 ? now : now + options_.restart_delay;
  Blame(id, fmt::format("{}; restart {} of {}", died, restarts_, options_.max_restarts), actions);
  const Actions due = OnTick(now);
  actions->insert(actions->end(), due.begin(), due.end());
}

void Supervisor::GiveUp(int code, const std::string& why, absl::Time now, Actions* actions) {
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

void Supervisor::StopWorkers(absl::Time now, Actions* actions) {
  state_ = State::kStoppingWorkers;
  kill_at_ = now + options_.grace;
  for (const auto& [id, process] : processes_) {
    if (process.alive) actions->push_back({.kind = Action::Kind::kTerminate, .id = id});
  }
}

Actions Supervisor::OnStopRequest(int signal, absl::Time now) {
  Actions actions;
  if (state_ == State::kDone) return actions;
  if (state_ != State::kRunning) {
    Say(processes_[kController].alive
            ? "killing what is left; what is newer than the last checkpoint is lost"
            : "killing what is left",
        &actions);
    KillAll(&actions);
  } else {
    Say("stopping: the controller finishes what it is at and saves; once more kills at once",
        &actions);
    GiveUp(128 + signal, "stopped", now, &actions);
    if (state_ == State::kStoppingController) kill_at_ = now + options_.stop_grace;
  }
  FinishIfAllGone(&actions);
  return actions;
}

Actions Supervisor::OnTick(absl::Time now) {
  Actions actions;
  if (state_ == State::kRunning) {
    StartDue(now, &actions);
  } else if (now >= kill_at_ && state_ != State::kDone) {
    Say(processes_[kController].alive ? "the grace period is over: killing what is left; what is "
                                        "newer than the last checkpoint is lost"
                                      : "the grace period is over: killing what is left",
        &actions);
    KillAll(&actions);
  }
  return actions;
}

void Supervisor::StartDue(absl::Time now, Actions* actions) {
  for (auto& [id, process] : processes_) {
    if (process.alive || process.restart_at > now) continue;
    if (process.let_go) {
      // It may not leave for ever without being counted.
      return Restart(id, id.ToString() + " left, but the run goes on", now, actions);
    }
    process.alive = true;
    process.restart_at = absl::InfiniteFuture();
    actions->push_back({.kind = Action::Kind::kSpawn, .id = id});
  }
}

void Supervisor::KillAll(Actions* actions) {
  state_ = State::kStoppingWorkers;
  kill_at_ = absl::InfiniteFuture();
  for (const auto& [id, process] : processes_) {
    if (process.alive) actions->push_back({.kind = Action::Kind::kKill, .id = id});
  }
}

bool Supervisor::AnyAlive() const {
  return std::any_of(processes_.begin(), processes_.end(),
                     [](const auto& entry) { return entry.second.alive; });
}

void Supervisor::FinishIfAllGone(Actions* actions) {
  if (state_ != State::kStoppingWorkers || AnyAlive()) return;
  state_ = State::kDone;
  kill_at_ = absl::InfiniteFuture();
  actions->push_back({.kind = Action::Kind::kFinish, .text = why_, .code = code_});
}

absl::Time Supervisor::NextDeadline() const {
  if (state_ == State::kDone) return absl::InfiniteFuture();
  if (state_ != State::kRunning) return kill_at_;
  absl::Time next = absl::InfiniteFuture();
  for (const auto& [id, process] : processes_) {
    if (!process.alive) next = std::min(next, process.restart_at);
  }
  return next;
}

}  // namespace tandem
