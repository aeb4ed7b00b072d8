// Who has the ranks of a run, for the controller that is started next.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <absl/base/thread_annotations.h>
#include <absl/status/status.h>

#include "common/base/mutex.h"
#include "common/process/threads.h"
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
  // Writes what it has been asked for.
  ~RankHolders();

  // What was written last; nothing where there is no file. One that cannot be used is passed over,
  // with a line in the log.
  std::vector<WorkerEntry> Read() const;

  // Calls `done`, from a thread of its own, when what `registry` has now is on the disk. What comes
  // while the file is written is answered by one more write for all; a file that says so already is
  // not written again. For the run's user alone. A failure is logged once, and `done` is called all
  // the same: a full disk must not end a run. `registry` must live until then.
  void Write(const WorkerRegistry& registry, std::function<void()> done);
  // Calls of Write that wait for another one's write now.
  int64_t waiting() const;

  // Of a run whose workers have been told to end.
  void Remove();

 private:
  void WriteAllAsked();
  // Takes what has been asked for; false: nothing is, and this is being destroyed.
  bool Take(std::vector<std::function<void()>>* asked, const WorkerRegistry** registry);
  // What Write writes, unless the file has it.
  void WriteNow(const WorkerRegistry& registry);

  const std::string path_;
  const Writer write_;
  mutable Mutex asked_mutex_;  // never held while the disk is waited for
  ConditionVariable changed_;
  std::vector<std::function<void()>> asked_ ABSL_GUARDED_BY(asked_mutex_);
  const WorkerRegistry* registry_ ABSL_GUARDED_BY(asked_mutex_) = nullptr;  // of the newest
  bool busy_ ABSL_GUARDED_BY(asked_mutex_) = false;  // the thread writes or answers
  bool ending_ ABSL_GUARDED_BY(asked_mutex_) = false;
  // Used by the thread, and by Remove while it rests.
  std::string written_;
  bool told_ = false;
  NamedThread thread_;
};

}  // namespace tandem
