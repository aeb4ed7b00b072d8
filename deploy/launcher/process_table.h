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
  // Kills and reaps whatever is left.
  ~ProcessTable();
  ProcessTable(const ProcessTable&) = delete;
  ProcessTable& operator=(const ProcessTable&) = delete;

  absl::Status Spawn(const ProcessId& id);
  // SIGTERM to the process, or SIGKILL to its whole group. Nothing happens if it is gone.
  void Signal(const ProcessId& id, int signal);
  // Kills the children that the controller found hanging: the files run_dir/hung/<role>-<rank>,
  // each with a process id, which are removed. Returns whom it killed; Reap finds them dead.
  std::vector<ProcessId> KillHung();
  // One dead child, if there is one. Orphans of our children are reaped silently.
  std::optional<std::pair<ProcessId, ProcessExit>> Reap();
  // Kills stray descendants that were left to us; true if there were none.
  bool KillStrays();

  // What the process wrote last since this launch began: logs are appended to from launch to
  // launch.
  std::string LastLinesOf(const ProcessId& id, int lines) const;

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
