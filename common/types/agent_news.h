// What the agent of a host and the controller tell each other: AgentService of controller.proto.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <absl/time/time.h>

#include "common/types/host_id.h"
#include "common/types/worker_key.h"

namespace tandem {

// A worker of the agent's host, whether it runs or not.
struct AgentProcess {
  WorkerKey key;
  int64_t pid = 0;        // 0: it does not run
  int starts = 0;         // since the agent began
  int64_t ended_pid = 0;  // of the process before; 0: there was none
  int exit_code = 0;      // of that one
  int exit_signal = 0;    // likewise; 0: it exited with `exit_code`

  friend bool operator==(const AgentProcess&, const AgentProcess&) = default;
};

// Why the run cannot go on: a worker that the agent does not start again.
struct AgentFailure {
  WorkerKey key;
  int code = 0;        // with which the run shall end
  std::string reason;  // "trainer 1 cannot run: exit code 64"
  std::string log;     // the last lines of that worker's log

  friend bool operator==(const AgentFailure&, const AgentFailure&) = default;
};

// What an agent tells with every beat.
struct AgentNews {
  int protocol = 0;
  std::string build;     // for people
  std::string build_id;  // BuildId(): equal for builds that may work together
  HostId host;
  int host_index = 0;
  int hosts = 1;           // as the agent was told
  std::string boot_nonce;  // random per process start
  int64_t pid = 0;
  bool leaving = false;  // the last beat: its workers have ended
  std::vector<AgentProcess> processes;
  std::optional<AgentFailure> failure;
};

// A worker that the agent's host shall have.
struct AgentOrder {
  WorkerKey key;
  std::string device;  // "cuda:1": its number on that host

  friend bool operator==(const AgentOrder&, const AgentOrder&) = default;
};

// A process that hangs.
struct AgentVictim {
  WorkerKey key;
  int64_t pid = 0;

  friend bool operator==(const AgentVictim&, const AgentVictim&) = default;
};

// What of the configuration an agent needs, as cluster.* says.
struct AgentLimits {
  absl::Duration heartbeat = absl::Seconds(1);
  absl::Duration controller_lost = absl::Seconds(180);
  int max_restarts = 3;
  absl::Duration restart_window = absl::Hours(1);
  int64_t log_max_bytes = 0;
  int64_t log_files_to_keep = 3;
};

// The answer to a beat: what shall be, not what shall be done, so that one that is lost costs
// nothing.
struct AgentOrders {
  bool over = false;  // the run has ended: the workers shall end, then the agent
  std::vector<AgentOrder> processes;
  std::vector<AgentVictim> kill;
  std::string run_dir;
  AgentLimits limits;
};

}  // namespace tandem
