// A thread that reads the samples which trainers fetch and writes the log-probs that they return,
// so that gRPC's few threads, which serve heartbeats as well, do not wait for a disk.
#pragma once

#include <deque>
#include <functional>

#include <absl/base/thread_annotations.h>

#include "common/base/mutex.h"
#include "common/process/threads.h"

namespace tandem {

// Runs tasks in the order in which they come. Thread-safe. The destructor waits for those that
// have.
class SampleDiskThread {
 public:
  SampleDiskThread();
  ~SampleDiskThread();

  void Post(std::function<void()> task);

 private:
  void RunAll();

  Mutex tasks_mutex_;
  ConditionVariable changed_;
  std::deque<std::function<void()>> tasks_ ABSL_GUARDED_BY(tasks_mutex_);
  bool ending_ ABSL_GUARDED_BY(tasks_mutex_) = false;
  NamedThread thread_;
};

}  // namespace tandem
