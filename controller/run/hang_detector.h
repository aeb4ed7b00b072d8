// Tells the launcher which workers hang: silent, but with a process that still holds its memory.
#pragma once

#include <map>
#include <string>
#include <utility>

#include <absl/time/time.h>

#include "common/base/clock.h"
#include "controller/workers/worker_registry.h"

namespace tandem {

struct HangWatchOptions {
  std::string run_dir;
  std::string boot_id;        // of this host: the launcher can end processes here only
  absl::Duration silent_for;  // without a heartbeat: longer than the registry's timeout, so that
                              // a worker that was merely suspended with everybody can speak up
};

// A request is the file run_dir/hung/<role>-<rank> with the process id, made once per incarnation.
// The launcher kills the process if it is its child, which makes it a death like any other, and
// removes the file. Where nobody launches, the file says what to do. Not thread-safe.
class HangWatch {
 public:
  // `registry` and `clock` must outlive it.
  HangWatch(HangWatchOptions options, const WorkerRegistry& registry, Clock& clock)
      : options_(std::move(options)), registry_(registry), clock_(clock) {}

  // To be called now and then.
  void Poll();

 private:
  void Request(const WorkerEntry& worker);

  const HangWatchOptions options_;
  const WorkerRegistry& registry_;
  Clock& clock_;
  std::map<WorkerKey, int64_t> requested_;  // incarnation
};

}  // namespace tandem
