// Decides what happens when processes start, die or must stop: a pure state machine.
//
//   Running ──controller done or final, worker misconfigured, restarts spent──▶ StoppingWorkers
//      └────stop requested──▶ StoppingController ──it exits──▶ StoppingWorkers ──all ended─▶ Done
//
// Each stopping state ends in SIGKILL after `grace`. A controller that the user asked to stop gets
// `stop_grace` instead, because it may have to finish a long call and save. The machine has no
// clock, processes or threads: every call takes `now` and returns actions that run_loop.h carries
// out in order.
#pragma once

#include <deque>
#include <map>
#include <string>
#include <vector>

#include <absl/time/time.h>

#include "common/base/clock.h"
#include "common/process/exit_code.h"

namespace tandem {

enum class Role { kController, kTrainer, kRollout };
const char* RoleName(Role role);

struct ProcessId {
  Role role = Role::kController;
  int rank = 0;
  bool operator==(const ProcessId& other) const = default;
  bool operator<(const ProcessId& other) const {
    return role != other.role ? role < other.role : rank < other.rank;
  }
  std::string ToString() const;  // "controller", "trainer 1"
};

struct ProcessExit {
  int code = 0;
  int signal = 0;                // 0: the process exited with `code`
  std::string ToString() const;  // "exit code 70", "signal 9 (Killed)"
};

struct Action {
  enum class Kind { kSpawn, kTerminate, kKill, kSay, kFinish };
  Kind kind = Kind::kSay;
  ProcessId id;        // kSpawn, kTerminate (SIGTERM), kKill (SIGKILL to its process group)
  std::string text;    // kSay: the message; kFinish: the reason, if `code` is not 0
  int code = 0;        // kFinish: the launcher's exit code
  bool blame = false;  // kSay: also show the last lines of the log of `id`
};
using Actions = std::vector<Action>;

struct SupervisorOptions {
  int trainers = 1;
  int rollouts = 1;
  int max_restarts = 3;  // of each role within restart_window
  absl::Duration restart_window = absl::Hours(1);
  // A controller that has given no sign of life for so long is killed and restarted. It gives the
  // first before it reads anything.
  absl::Duration watchdog = absl::InfiniteDuration();
  absl::Duration grace = absl::Seconds(20);       // from SIGTERM to SIGKILL
  absl::Duration stop_grace = absl::Minutes(10);  // the controller's when the user asks to stop
  absl::Duration leave_time = absl::Seconds(10);  // from a worker's exit with 0 to the controller's
  absl::Duration restart_delay = absl::Seconds(1);  // of a second and later restart of a process
};

// Not thread-safe.
class Supervisor {
 public:
  explicit Supervisor(const SupervisorOptions& options) : options_(options) {}

  Actions Start(Instant now);
  Actions OnExit(ProcessId id, ProcessExit exit, Instant now);
  // SIGINT or SIGTERM. The second request kills at once.
  Actions OnStopRequest(int signal, Instant now);
  // The controller has given a sign of life.
  void OnAlive(Instant now) { alive_at_ = now; }
  // Starts processes whose restart is due, kills a controller that is silent, and kills those whose
  // grace period expired. Call at NextDeadline() or later.
  Actions OnTick(Instant now);

  Instant NextDeadline() const;  // InfiniteFuture: nothing is due
  bool done() const { return state_ == State::kDone; }

 private:
  enum class State { kRunning, kStoppingController, kStoppingWorkers, kDone };
  struct Process {
    bool alive = false;
    int deaths = 0;
    bool let_go = false;  // exited with 0 while the controller kept running
    Instant restart_at = Instant::InfiniteFuture();
  };

  void OnControllerExit(ProcessExit exit, Instant now, Actions* actions);
  void OnWorkerExit(ProcessId id, ProcessExit exit, Instant now, Actions* actions);
  void Restart(ProcessId id, const std::string& died, Instant now, Actions* actions);
  void KillSilentController(Instant now, Actions* actions);
  Instant WatchdogDeadline() const { return alive_at_ + options_.watchdog; }
  void StartDue(Instant now, Actions* actions);
  void StopWorkers(Instant now, Actions* actions);
  void GiveUp(int code, const std::string& why, Instant now, Actions* actions);
  void KillAll(Actions* actions);
  void FinishIfAllEnded(Actions* actions);
  bool AnyAlive() const;

  const SupervisorOptions options_;
  State state_ = State::kRunning;
  std::map<ProcessId, Process> processes_;
  std::map<Role, std::deque<Instant>> restarts_;  // within the window, the oldest first
  // When the controller that runs gave its last sign of life, or was started; InfiniteFuture: none
  // runs, or it is being killed.
  Instant alive_at_ = Instant::InfiniteFuture();
  int code_ = 0;
  std::string why_;
  Instant kill_at_ = Instant::InfiniteFuture();
};

}  // namespace tandem
