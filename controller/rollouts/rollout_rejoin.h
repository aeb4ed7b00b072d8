// Brings lost rollouts back: a thread waits for their successors to register and sends them the
// weights, while the other rollouts continue to generate.
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

struct RejoinOptions {
  int64_t version = -1;  // the weight version that rejoining rollouts receive
  absl::Duration register_timeout = absl::Seconds(60);
  std::function<bool()> interrupted;
};

// All calls must be made by one thread. Only this object may use `weights` between ReportLost and
// WaitForAll.
class RolloutRejoin {
 public:
  RolloutRejoin(WorkerPool& pool,
                WeightSync& weights,
                RestartBudget& budget,
                ProgressSink& progress,
                RejoinOptions options);
  // Stops waiting for workers and aborts a sync in progress.
  ~RolloutRejoin();

  // Reports a rollout whose process failed, or that does not hold the weight version;
  // `replica`.client may be null. The next TakeRejoined or WaitForAll begins to bring it back. All
  // rollouts that are lost before the sync begins are synced together.
  void ReportLost(const Replica& replica, absl::Status reason);
  // Rollouts that rejoined since the last call: they hold the weight version and serve. Never
  // blocks. Fails as WaitForAll as soon as a rollout is known not to return.
  absl::StatusOr<std::vector<Replica>> TakeRejoined();
  // Blocks until no rollout is missing. Peer failures: a trainer was lost too, or the restart
  // budget is spent; Cancelled: interrupted; DeadlineExceeded: workers did not return within
  // register_timeout, and waiting longer would not help; otherwise as WeightSync.
  absl::Status WaitForAll();

 private:
  struct Loss {
    int rank = 0;
    int64_t incarnation = 0;  // of the lost worker; 0: no worker was registered
    absl::Status reason;
  };

  // Removes rollouts that take no part any more, and so do not come back.
  void ForgetLeftOut(std::vector<Loss>* losses) const;
  // Starts the thread for all losses that were reported since the last one.
  void Start();
  // Runs on the thread.
  absl::Status Sync();
  // Joins the thread and evaluates its result.
  void Finish();
  // Moves later losses that the finished sync has repaired as well from lost_ to rejoining_.
  void ClaimSyncedLosses();
  bool stopped() const { return stop_ || (options_.interrupted && options_.interrupted()); }

  WorkerPool& pool_;
  WeightSync& weights_;
  RestartBudget& budget_;
  ProgressSink& progress_;
  const RejoinOptions options_;
  const std::vector<WorkerMember> trainers_;  // others have no state to sync

  std::vector<Loss> lost_;       // reported, and no thread waits for them yet
  std::vector<Loss> rejoining_;  // the thread waits for them
  std::vector<Replica> rejoined_;
  absl::Status failure_;  // once set, no further rollout rejoins

  std::atomic<bool> stop_ = false, done_ = false;
  std::unique_ptr<NamedThread> thread_;
  // Owned by the thread until it is joined.
  absl::Status synced_;
  std::vector<int> ranks_;  // rollouts that were synced
  std::string checked_;     // the weight check's result, for the user
};

}  // namespace tandem
