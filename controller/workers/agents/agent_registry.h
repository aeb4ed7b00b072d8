// The agents of a run's hosts: who is there, and which workers each shall run.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <absl/base/thread_annotations.h>
#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/time/time.h>

#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/types/agent_news.h"
#include "common/types/topology.h"
#include "controller/workers/agents/host_assignment.h"

namespace tandem {

struct AgentRegistryOptions {
  Topology topology;
  std::string device;  // of the workers: "cpu" or "cuda"
  absl::Duration heartbeat_timeout = absl::Seconds(10);
  // Whether others run the workers of agents that are gone (HostAssignment).
  bool elastic = false;
  int spare_hosts = 0;   // agents beyond those of the plan's hosts
  int min_rollouts = 1;  // are never left out
  // Whether a host may run a lost one's workers beside its own.
  bool double_up = true;
  // Of agents that have not come since the controller began; then they count as gone.
  absl::Duration join_time = absl::Seconds(30);
  std::string build;     // of the controller
  std::string build_id;  // of the controller
  bool allow_other_build = false;
  std::string run_dir;
  AgentLimits limits;
};

struct AgentEntry {
  AgentNews news;  // of its last beat
  Instant last_heartbeat;
  bool lost = false;  // silent for heartbeat_timeout
  bool told_over = false;
  std::vector<AgentVictim> kill;  // that still run as far as it has told

  // "the agent of host 1 on b (boot 1f2e3d4c)"
  std::string Text() const;
};

// Workers that changed their agent, as the one they had is gone, or one came.
struct MovedWorkers {
  std::vector<WorkerKey> workers;
  std::optional<HostId> to;  // the only host where they may run; nullopt: nobody runs them
  std::string text;          // a sentence without its full stop
};

struct AgentAnswer {
  AgentOrders orders;
  bool is_new = false;  // its first beat, as far as this controller knows
};

// An agent has an index, that of a host of the plan at first. It keeps it while it sends beats;
// another process that asks for it meanwhile is refused, and may have it once the holder has been
// silent for heartbeat_timeout or has left. A controller that was restarted begins with no agents
// and learns them from their beats: as they are told what shall run, and not what to do, nothing
// that runs ends by that. Takes the time from a Clock, and does nothing by itself. Thread-safe.
class AgentRegistry {
 public:
  AgentRegistry(AgentRegistryOptions options, Clock& clock)
      : options_(std::move(options)), clock_(clock), began_(clock.Now()) {}

  // Takes a beat and says what shall be on that host. InvalidArgument: protocol, or an index that
  // is none of a host; FailedPrecondition: another build where that is not allowed, a number of
  // hosts that contradicts the configuration or the other agents, or a host that has an agent
  // already; AlreadyExists: another agent has the index.
  absl::StatusOr<AgentAnswer> Beat(const AgentNews& news);

  // Marks agents without a beat for heartbeat_timeout as lost; returns those marked now.
  std::vector<AgentEntry> DetectLost();

  // Gives the workers of agents that are gone to others, and those that are left out to an agent
  // that came, if options say elastic. Agents are told with their next beat, so the caller has
  // the time to let go of the workers that were there. To be called periodically.
  std::vector<MovedWorkers> MoveWorkers();

  // Asks the agent of `host` to kill a worker's process. False: no living agent there has it.
  bool AskToKill(const HostId& host, const WorkerKey& key, int64_t pid);

  // By the index of the host.
  std::vector<AgentEntry> Agents() const;

  // From now on beats are answered with "the run is over".
  void EndRun();
  // Whether each agent that is not lost has had that answer.
  bool AllToldOver() const;

 private:
  absl::Status Check(const AgentNews& news) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(agents_mutex_);
  absl::Status CheckBuild(const AgentNews& news) const;
  absl::Status CheckHosts(const AgentNews& news) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(agents_mutex_);
  AgentOrders OrdersFor(const AgentEntry& entry) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(agents_mutex_);
  // The assignment for agents of so many hosts.
  void Assign(const AgentNews& news, bool is_new) ABSL_EXCLUSIVE_LOCKS_REQUIRED(agents_mutex_);
  // Whether another agent that is here says that it runs one of the workers.
  bool OtherRuns(const AgentNews& news, const std::vector<WorkerKey>& workers) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(agents_mutex_);
  bool IsHere(int index) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(agents_mutex_);
  bool IsGone(int index) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(agents_mutex_);
  // The last that was heard of the agents of a host; nullopt: there was none yet.
  struct LastHeard {
    Instant at;
    HostId host;
  };
  std::optional<LastHeard> Heard(int index) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(agents_mutex_);
  // "host 1 on b (boot 1f2e3d4c)"
  std::string PlaceText(int index) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(agents_mutex_);
  MovedWorkers Moved(const HostMove& move) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(agents_mutex_);

  const AgentRegistryOptions options_;
  Clock& clock_;
  mutable Mutex agents_mutex_;
  std::map<int, AgentEntry> agents_ ABSL_GUARDED_BY(agents_mutex_);  // by index
  // Those that have left and that nobody has followed, by index.
  std::map<int, LastHeard> left_ ABSL_GUARDED_BY(agents_mutex_);
  // When another process asked last for the place of an agent that may still be alive.
  std::map<int, Instant> asked_for_place_ ABSL_GUARDED_BY(agents_mutex_);
  std::optional<HostAssignment> assignment_ ABSL_GUARDED_BY(agents_mutex_);  // from the first beat
  const Instant began_;
  bool over_ ABSL_GUARDED_BY(agents_mutex_) = false;
};

// What an agent reported of a worker that it cannot mend, as the reason for the run's end. The code
// is one that ExitCodeAt turns into the reported one: InvalidArgument for 64, else Internal.
absl::Status FailureOf(const AgentNews& news);

}  // namespace tandem
