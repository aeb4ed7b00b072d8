// Lost rollouts on their way back: a thread waits for their successors and syncs them, while the
// others go on with what they do.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <absl/status/status.h>
#include <absl/time/time.h>

#include "common/process/threads.h"
#include "controller/rollouts/rollout_dispatcher.h"
#include "controller/rollouts/weight_sync.h"
#include "controller/store/progress.h"
#include "controller/workers/restart_budget.h"
#include "controller/workers/worker_pool.h"

namespace tandem {

struct ReturnOptions {
  int64_t version = -1;  // that all are brought to
  absl::Duration register_timeout = absl::Seconds(60);
  std::function<bool()> interrupted;
};

// All calls on one thread. While a rollout is on its way the sync is this object's: nobody else
// calls `weights` between Lost and Wait.
class ReturningRollouts {
 public:
  ReturningRollouts(WorkerPool& pool,
                    WeightSync& weights,
                    RestartBudget& budget,
                    ProgressSink& progress,
                    ReturnOptions options);
  // Gives up waiting for workers and aborts a sync under way.
  ~ReturningRollouts();

  // A rollout failed as if gone, or does not hold the version; `replica`.client may be null. The
  // next Take or Wait begins to bring it back, with all others that were lost by then: they are
  // synced together, as is whoever is lost before that sync begins.
  void Lost(const Replica& replica, absl::Status reason);
  // Rollouts that came back since the last call: they hold the version and serve. Never blocks.
  // Fails as Wait does as soon as it is known that somebody does not come back.
  absl::StatusOr<std::vector<Replica>> Take();
  // Blocks until nobody is missing. Peer failures: a trainer was lost too, or the budget is used
  // up; Cancelled: interrupted; DeadlineExceeded: workers stay away, which no further wait mends;
  // else as WeightSync.
  absl::Status Wait();

 private:
  struct Loss {
    int rank = 0;
    int64_t incarnation = 0;  // that was lost; 0: nobody was there
    absl::Status reason;
  };

  // Sets out for all that were lost since the last time.
  void Start();
  // On the thread.
  absl::Status Sync();
  // The thread has come to its end.
  void Finish();
  // Puts losses into `coming_` that the sync that has just ended has mended too.
  void TakeAlong();
  bool stopped() const { return stop_ || (options_.interrupted && options_.interrupted()); }

  WorkerPool& pool_;
  WeightSync& weights_;
  RestartBudget& budget_;
  ProgressSink& progress_;
  const ReturnOptions options_;
  const std::vector<int64_t> trainers_;  // incarnations: others have no state to sync

  std::vector<Loss> lost_;  // nobody looks for them yet
  std::vector<Loss> coming_;
  std::vector<Replica> returned_;
  absl::Status failure_;  // nobody comes back any more

  std::atomic<bool> stop_ = false, done_ = false;
  std::unique_ptr<NamedThread> thread_;
  // The thread's until it is joined.
  absl::Status synced_;
  std::vector<int> ranks_;  // that were synced
  std::string checked_;     // what the weight check said
};

}  // namespace tandem
