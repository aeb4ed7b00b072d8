// Who has the ranks of a run, for the controller that is started next.
#pragma once

#include <string>
#include <vector>

#include <absl/base/thread_annotations.h>

#include "common/base/mutex.h"
#include "controller/workers/worker_registry.h"

namespace tandem {

// The file RUN_DIR/workers.json. Workers outlive their controller: without this file the next
// controller would give a live worker's rank to the first process that asks. It lists the workers
// of this controller, and those of earlier ones whose ranks are still free. It is removed when the
// run ends normally and the workers have been told to stop. Thread-safe.
class RankHolders {
 public:
  explicit RankHolders(const std::string& run_dir) : path_(run_dir + "/workers.json") {}

  // What was written last; nothing where there is no file. One that cannot be used is passed over,
  // with a line in the log.
  std::vector<WorkerEntry> Read() const;

  // For the run's user alone. A failure is logged once: a full disk must not end a run.
  void Write(const WorkerRegistry& registry);

  // Of a run whose workers have been told to end.
  void Remove();

 private:
  const std::string path_;
  Mutex write_mutex_;
  bool told_ ABSL_GUARDED_BY(write_mutex_) = false;
};

}  // namespace tandem
