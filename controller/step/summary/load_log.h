// What the rollouts had to do since the last record, as their heartbeats told.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include <absl/time/time.h>

#include "common/base/mutex.h"
#include "controller/store/run_store.h"

namespace tandem {

// Keeps at most kMostOfRollout records of a rollout: where there are more, every second, then every
// fourth heartbeat and so on, so that a long step costs no more than a short one. Thread-safe.
class LoadLog {
 public:
  static constexpr size_t kMostOfRollout = 64;

  void Note(int rank, const GeneratorLoad& load, absl::Time now);
  // Those since the last call, by rank and time.
  std::vector<LoadRecord> Take();

 private:
  struct Kept {
    std::vector<LoadRecord> records;
    int64_t every = 1;  // heartbeat
    int64_t seen = 0;   // heartbeats
  };

  Mutex log_mutex_;
  std::map<int, Kept> kept_ ABSL_GUARDED_BY(log_mutex_);
};

}  // namespace tandem
