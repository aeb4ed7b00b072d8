// The live children: starts, signals and reaps them, and keeps run_dir/pids.json.
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
  // Reaps one dead child and returns it. Orphaned descendants are reaped and not returned.
  std::optional<std::pair<ProcessId, ProcessExit>> Reap();
  // Kills descendants that outlived their parents; true if there were none.
  bool KillStrays();

  // The last lines of the process's log, without those of earlier launches, which the log keeps.
  std::string LastLogLines(const ProcessId& id, int lines) const;

  size_t size() const { return pids_.size(); }
  const LaunchPlan& plan() const { return plan_; }

 private:
  void WritePids() const;

  LaunchPlan plan_;
  std::map<ProcessId, pid_t> pids_;
  std::map<ProcessId, int> starts_;
  std::map<ProcessId, int64_t> log_begin_;  // bytes that earlier launches wrote
};

}  // namespace tandem
