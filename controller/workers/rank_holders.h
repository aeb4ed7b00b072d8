// Who has the ranks of a run, for the controller that is started next.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <absl/base/thread_annotations.h>
#include <absl/status/status.h>

#include "common/base/mutex.h"
#include "controller/workers/worker_registry.h"

namespace tandem {

// The file RUN_DIR/workers.json. Workers outlive their controller: without this file the next
// controller would give a live worker's rank to the first process that asks. It lists the workers
// of this controller, and those of earlier ones whose ranks are still free. It is removed when the
// run ends normally and the workers have been told to stop. Thread-safe.
class RankHolders {
 public:
  // WritePrivateFile, which waits for the disk; tests give another.
  using Writer = std::function<absl::Status(const std::string& path, const std::string& text)>;

  explicit RankHolders(const std::string& run_dir);
  RankHolders(const std::string& run_dir, Writer write);

  // What was written last; nothing where there is no file. One that cannot be used is passed over,
  // with a line in the log.
  std::vector<WorkerEntry> Read() const;

  // What `registry` has when it is called is on the disk when it returns. Calls that come while the
  // file is written wait, and then one write does for all of them; a file that says so already is
  // not written again. For the run's user alone. A failure is logged once: a full disk must not end
  // a run.
  void Write(const WorkerRegistry& registry);
  // Calls of Write that wait for another one's write now.
  int64_t waiting() const;

  // Of a run whose workers have been told to end.
  void Remove();

 private:
  // What Write writes, unless the file has it.
  void WriteNow(const WorkerRegistry& registry);

  const std::string path_;
  const Writer write_;
  mutable Mutex turn_mutex_;  // never held while the disk is waited for
  ConditionVariable turn_ended_;
  int64_t asked_ ABSL_GUARDED_BY(turn_mutex_) = 0;    // calls of Write so far
  int64_t covered_ ABSL_GUARDED_BY(turn_mutex_) = 0;  // of them, whose state has been written
  int64_t waiting_ ABSL_GUARDED_BY(turn_mutex_) = 0;
  bool busy_ ABSL_GUARDED_BY(turn_mutex_) = false;  // a call has the file
  // Used by the call that has the file alone.
  std::string written_;
  bool told_ = false;
};

}  // namespace tandem
