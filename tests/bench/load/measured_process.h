// What a process uses of the machine, as /proc tells, now and at most.
#pragma once

#include <atomic>
#include <cstdint>

#include <absl/base/thread_annotations.h>
#include <sys/types.h>

#include "common/base/mutex.h"
#include "common/process/threads.h"

namespace tandem::testing {

struct ProcessUse {
  int64_t resident_bytes = 0;
  int64_t threads = 0;
  int64_t descriptors = 0;
};

// Looks every 20 ms, in a thread of its own, from its construction on.
class MeasuredProcess {
 public:
  explicit MeasuredProcess(pid_t pid);
  ~MeasuredProcess();

  // Processor time that the process has used so far, by the user and in the kernel.
  double CpuSeconds() const;
  // The largest of each since the last call of it; of all looks before the first.
  ProcessUse TakeMost();

 private:
  ProcessUse Look() const;

  const pid_t pid_;
  std::atomic<bool> over_ = false;
  Mutex most_mutex_;
  ProcessUse most_ ABSL_GUARDED_BY(most_mutex_);
  NamedThread looks_;
};

}  // namespace tandem::testing
