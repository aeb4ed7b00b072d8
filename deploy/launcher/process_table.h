// The children: starts, signals and reaps them, and keeps a list of them on the disk.
#pragma once

#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "deploy/launcher/launch_plan.h"

namespace tandem {

// Not thread-safe, and all calls come from one thread: children die with the thread that started
// them.
class ProcessTable {
 public:
  explicit ProcessTable(LaunchPlan plan) : plan_(std::move(plan)) {}
  // Kills and reaps the children that are left.
  ~ProcessTable();
  ProcessTable(const ProcessTable&) = delete;
  ProcessTable& operator=(const ProcessTable&) = delete;

  absl::Status Spawn(const ProcessId& id);
  // Sends SIGTERM to the process, or SIGKILL to its process group. Without effect if it has ended.
  void Signal(const ProcessId& id, int signal);
  // Kills the children that the controller found hanging. It names each in a file
  // run_dir/hung/<role>-<rank> that holds a process id; the files are removed. Returns the killed
  // children, which Reap then returns as dead.
  std::vector<ProcessId> KillHung();
  // Kills the child and returns true if `pid` is its process.
  bool KillIfStill(const ProcessId& id, pid_t pid);
  // Reaps one dead child and returns it. Orphaned descendants are reaped and not returned.
  std::optional<std::pair<ProcessId, ProcessExit>> Reap();
  // Kills descendants that outlived their parents; true if there were none.
  bool KillStrays();

  // The last lines of the process's log, without those of earlier launches, which the log keeps.
  std::string LastLogLines(const ProcessId& id, int lines) const;

  // A child that has been started at least once.
  struct Child {
    pid_t pid = 0;  // 0: it does not run
    int starts = 0;
    pid_t ended_pid = 0;    // of the process before; 0: there was none
    ProcessExit exit;       // of that one
    int64_t log_begin = 0;  // bytes that earlier launches wrote
  };
  const std::map<ProcessId, Child>& children() const { return children_; }

  const LaunchPlan& plan() const { return plan_; }
  // The device of a worker that is started from now on, "cuda:1".
  void SetDevice(const ProcessId& id, const std::string& device) { plan_.devices[id] = device; }

 private:
  pid_t PidOf(const ProcessId& id) const;  // 0: it does not run
  void WritePids() const;

  LaunchPlan plan_;
  std::map<ProcessId, Child> children_;
};

}  // namespace tandem
