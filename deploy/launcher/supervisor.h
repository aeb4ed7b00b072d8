// Decides what happens when processes start, die or must stop: a pure state machine.
//
//   Running ──controller done or final, worker misconfigured, restarts spent──▶ StoppingWorkers
//      └────stop requested──▶ StoppingController ──it exits──▶ StoppingWorkers ──all ended─▶ Done
//
// Each stopping state ends in SIGKILL after `grace`. A controller that the user asked to stop gets
// `stop_grace` instead, because it may have to finish a long call and save. The machine has no
// clock, processes or threads: every call takes `now` and returns actions that its caller carries
// out in order.
//
// A launcher's processes include the controller. An agent's do not: its controller runs elsewhere,
// decides which processes it has (OnOrders) and whether the run is over (OnRunOver), and shows that
// the run continues by its answers (OnAlive). A worker that exits with 0 was then let go by that
// controller; it is missed, and started again, only if the controller still says so `leave_time`
// later. One that found no controller is started again when that answers the agent; this counts as
// a restart only where the agent had answers meanwhile. What cannot be mended is reported to the
// controller (kReport), which ends the run:
//
//   Running ──worker misconfigured, restarts spent──▶ StoppingController ──run over, or `grace`─▶ ┐
//      └──run over, controller lost or silent after all were let go, stopped──▶ StoppingWorkers ◀─┘
//
// A launcher's agents know from the controller that the run is over, and end by themselves; one
// that still runs `leave_time` later is asked to. Restarts of agents that are spent end the run
// with kExitRestart: on other hosts it may go on. Where agents_may_stay_away, the run goes on
// without those that are not started again, as long as one runs.
#pragma once

#include <deque>
#include <map>
#include <string>
#include <vector>

#include <absl/time/time.h>

#include "common/base/clock.h"
#include "common/process/exit_code.h"

namespace tandem {

enum class Role { kController, kTrainer, kRollout, kAgent };
const char* RoleName(Role role);

struct ProcessId {
  Role role = Role::kController;
  int rank = 0;  // an agent's: the index of its host
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
  enum class Kind { kSpawn, kTerminate, kKill, kSay, kReport, kFinish };
  Kind kind = Kind::kSay;
  ProcessId id;      // kSpawn, kTerminate (SIGTERM), kKill (SIGKILL to its process group), kReport
  std::string text;  // kSay: the message; kReport: why; kFinish: the reason, if `code` is not 0
  int code = 0;      // kReport: what the run shall end with; kFinish: the own exit code
  bool blame = false;  // kSay: also show the last lines of the log of `id`
};
using Actions = std::vector<Action>;

struct SupervisorOptions {
  std::vector<ProcessId> processes;  // started in this order; without a controller: an agent's
  int max_restarts = 3;              // of each role within restart_window
  absl::Duration restart_window = absl::Hours(1);
  // A controller that has given no sign of life for so long is killed and restarted. It gives the
  // first before it reads anything.
  absl::Duration watchdog = absl::InfiniteDuration();
  absl::Duration grace = absl::Seconds(20);       // from SIGTERM to SIGKILL
  absl::Duration stop_grace = absl::Minutes(10);  // the controller's when the user asks to stop
  // From a worker's exit with 0 to the controller's, and from the controller's exit to an agent's.
  absl::Duration leave_time = absl::Seconds(10);
  // An agent that had no answer for so long when a worker lost the controller lost it as well.
  absl::Duration silence = absl::Seconds(10);
  absl::Duration restart_delay = absl::Seconds(1);  // of a second and later restart of a process
  bool agents_may_stay_away = false;                // their hosts' workers run elsewhere
};

// Not thread-safe.
class Supervisor {
 public:
  explicit Supervisor(const SupervisorOptions& options);

  Actions Start(Instant now);
  Actions OnExit(ProcessId id, ProcessExit exit, Instant now);
  // SIGINT, SIGTERM, or SIGUSR1 of Slurm. The second request kills at once.
  Actions OnStopRequest(int signal, Instant now);
  // The controller has given a sign of life; an agent's has answered that the run continues.
  void OnAlive(Instant now) { alive_at_ = now; }
  // An agent's controller wants these processes and no others: those that are new are started,
  // those that are gone are asked to end, and killed after `grace`. No restart is counted.
  Actions OnOrders(const std::vector<ProcessId>& processes, Instant now);
  // An agent's run is over, or its controller is lost: the workers end, then the agent with `code`,
  // or with the code of what it has reported.
  Actions OnRunOver(int code, const std::string& why, Instant now);
  // Starts processes whose restart is due, kills a controller that is silent, and kills those whose
  // grace period expired. Call at NextDeadline() or later, and after OnAlive.
  Actions OnTick(Instant now);

  Instant NextDeadline() const;  // InfiniteFuture: nothing is due
  // Nothing is being stopped yet.
  bool running() const { return state_ == State::kRunning; }
  bool done() const { return state_ == State::kDone; }

 private:
  enum class State { kRunning, kStoppingController, kStoppingWorkers, kDone };
  struct Process {
    bool alive = false;
    int deaths = 0;
    bool let_go = false;           // exited with 0 while the controller kept running
    bool lost_controller = false;  // an agent's: exited because the controller did not answer
    bool as_agent = false;         // nor did it answer the agent
    bool wanted = true;
    bool dismissed = false;  // asked to end because it was not wanted
    Instant restart_at = Instant::InfiniteFuture();
    Instant kill_at = Instant::InfiniteFuture();       // of one that was dismissed
    Instant terminate_at = Instant::InfiniteFuture();  // of an agent that is to end by itself
  };

  void OnControllerExit(ProcessExit exit, Instant now, Actions* actions);
  void OnWorkerExit(ProcessId id, ProcessExit exit, Instant now, Actions* actions);
  void OnDismissedExit(ProcessId id, Actions* actions);
  void Restart(ProcessId id, const std::string& died, Instant now, Actions* actions);
  // Whether the run goes on without agent `id`, which has ended.
  bool MayStayAway(ProcessId id) const;
  // Tries it again when restarts are left, at the end of their window.
  void StayAway(ProcessId id, Instant now, Actions* actions);
  void KillSilentController(Instant now, Actions* actions);
  Instant WatchdogDeadline() const { return alive_at_ + options_.watchdog; }
  void StartDue(Instant now, Actions* actions);
  void KillDismissed(Instant now, Actions* actions);
  void TerminateAgents(Instant now, Actions* actions);
  // Whether the restart of a process that does not run is due.
  bool IsDue(const Process& process, Instant now) const;
  // When an agent takes the run for over because its workers were let go and its controller is
  // silent; InfiniteFuture: not as things are.
  Instant LetGoDeadline() const;
  void StopWorkers(Instant now, Actions* actions);
  void GiveUp(ProcessId id, int code, const std::string& why, Instant now, Actions* actions);
  void KillAll(Actions* actions);
  void FinishIfAllEnded(Actions* actions);
  bool AnyAlive() const;
  bool IsControllerAlive() const;

  const SupervisorOptions options_;
  const bool is_agent_;  // the controller is not among the processes
  State state_ = State::kRunning;
  std::map<ProcessId, Process> processes_;
  std::map<Role, std::deque<Instant>> restarts_;  // within the window, the oldest first
  // When the controller that runs gave its last sign of life, or was started; InfiniteFuture: none
  // runs, or it is being killed. An agent's: when it answered last.
  Instant alive_at_ = Instant::InfiniteFuture();
  int code_ = 0;
  std::string why_;
  Instant kill_at_ = Instant::InfiniteFuture();
};

}  // namespace tandem
