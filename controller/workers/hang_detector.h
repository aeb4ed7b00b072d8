// Reports hung workers to who started them: workers that send no heartbeats, or whose heartbeats
// tell that their engine stands still, while their process still runs and holds its memory.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <utility>

#include <absl/time/time.h>

#include "common/base/clock.h"
#include "controller/workers/worker_registry.h"

namespace tandem {

struct HangDetectorOptions {
  std::string run_dir;
  // The time without a heartbeat after which a worker counts as hung. Longer than the registry's
  // timeout, so that a worker that was suspended together with the controller can still send one.
  absl::Duration no_heartbeat_for;
  // Asks the agent of the worker's host to kill it; false: no agent there has it. Empty: there are
  // no agents.
  std::function<bool(const WorkerEntry& worker)> ask_agent;
};

// Asks the worker's agent, once per loss, where there is one. Else writes the file
// run_dir/hung/<role>-<rank> with the process id, for workers whose processes are seen from here,
// also those of an earlier controller that do not come back. The launcher kills the process if it
// is its child, so that it is restarted like any worker that died, and removes the file. Without a
// launcher the file tells the user what to do. Not thread-safe.
class HangDetector {
 public:
  // `registry` and `clock` must outlive the detector.
  HangDetector(HangDetectorOptions options, const WorkerRegistry& registry, Clock& clock)
      : options_(std::move(options)), registry_(registry), clock_(clock) {}

  // Must be called periodically.
  void Poll();

 private:
  void Look(const WorkerEntry& worker);
  // Logs why `asked` is asked to kill it.
  void Tell(const WorkerEntry& worker, const std::string& asked) const;
  void Request(const WorkerEntry& worker);

  const HangDetectorOptions options_;
  const WorkerRegistry& registry_;
  Clock& clock_;
  std::map<WorkerKey, int64_t> requested_;  // incarnation for which the file was written
};

}  // namespace tandem
