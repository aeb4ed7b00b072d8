// The clients of all workers, one per rank and incarnation.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <absl/base/thread_annotations.h>
#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/time/time.h>

#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/types/topology.h"
#include "controller/workers/agents/active_rollouts.h"
#include "controller/workers/rollout_client.h"
#include "controller/workers/trainer_client.h"
#include "controller/workers/worker_registry.h"

namespace tandem {

// Whether `status` comes from a WaitUntilComplete that timed out. A recovery does not wait for the
// missing workers again.
bool WorkerDidNotReturn(const absl::Status& status);

// Makes the clients: over gRPC, or fakes in tests.
struct ClientFactory {
  std::function<absl::StatusOr<std::shared_ptr<TrainerClient>>(const WorkerEntry&)> trainer;
  std::function<absl::StatusOr<std::shared_ptr<RolloutClient>>(const WorkerEntry&)> rollout;
};

// A process of a worker.
struct WorkerProcess {
  WorkerKey key;
  int64_t incarnation = 0;
};

// Thread-safe.
class WorkerPool {
 public:
  // `registry` and `clock` must outlive the pool. Without `rollouts` all take part for ever.
  WorkerPool(WorkerRegistry& registry,
             ClientFactory factory,
             const Topology& topology,
             Clock& clock,
             std::shared_ptr<ActiveRollouts> rollouts = nullptr)
      : registry_(registry),
        factory_(std::move(factory)),
        topology_(topology),
        clock_(clock),
        rollouts_in_run_(rollouts ? std::move(rollouts)
                                  : std::make_shared<ActiveRollouts>(topology.rollouts)) {}

  const Topology& topology() const { return topology_; }
  // Those to call; ranks are those of the topology.
  ActiveRollouts& active_rollouts() const { return *rollouts_in_run_; }
  Clock& clock() const { return clock_; }

  // Blocks until every worker is ready. DeadlineExceeded names the missing workers, and
  // WorkerDidNotReturn is true for it; `timeout` starts when no rank is reserved any more for a
  // worker of an earlier controller. Cancelled: `interrupted` returned true.
  absl::Status WaitUntilComplete(absl::Duration timeout, const std::function<bool()>& interrupted);

  // The client of the ready worker of that rank. Unavailable: there is none. One client serves a
  // worker until another incarnation registers, or until Reconnect.
  absl::StatusOr<std::shared_ptr<TrainerClient>> trainer(int rank);
  absl::StatusOr<std::shared_ptr<RolloutClient>> rollout(int rank);

  // By rank. Differs when a process was replaced or is not ready any more.
  std::vector<WorkerMember> Members(WorkerRole role) const;
  // Of all workers that have registered, lost or not: differs when a process was replaced.
  std::vector<int64_t> Incarnations() const;

  // The worker's latest memory ledger, from a heartbeat or a report; empty if it never sent one.
  LedgerSnapshot Ledger(const WorkerKey& key) const;
  void NoteLedger(const WorkerKey& key, const LedgerSnapshot& ledger);
  // The loads of all rollouts, by rank, as their last heartbeats told; nullopt of one that told
  // none.
  std::vector<std::optional<GeneratorLoad>> GenerationLoads() const;

  // Marks the worker lost because a call to it failed; its next heartbeat that tells
  // progress makes it ready again.
  void MarkLost(const WorkerKey& key, int64_t incarnation);
  // From now on calls to `only`, or to all workers without it, go over new connections. Those on
  // the old ones that are under way end with Cancelled; calls to a process that has taken the place
  // of `only` go on. Call it before calls that failed are repeated: a connection may stay open and
  // answer nothing, though its worker is well.
  void Reconnect(std::optional<WorkerProcess> only = std::nullopt);
  // Marks workers lost that send no heartbeats, or whose engine stands still, then ends the calls
  // to all that are lost or were replaced. A thread of its own calls this periodically, so that no
  // call to a dead worker has to wait for its deadline.
  void DetectLostAndCancelCalls();

 private:
  WorkerRegistry& registry_;
  const ClientFactory factory_;
  const Topology topology_;
  Clock& clock_;
  const std::shared_ptr<ActiveRollouts> rollouts_in_run_;
  Mutex clients_mutex_;
  std::map<int, std::shared_ptr<TrainerClient>> trainers_ ABSL_GUARDED_BY(clients_mutex_);
  std::map<int, std::shared_ptr<RolloutClient>> rollouts_ ABSL_GUARDED_BY(clients_mutex_);
};

// Asks all ready workers to end, concurrently. Errors are ignored: a worker that does not answer
// has ended already.
void ShutDownWorkers(WorkerPool& pool);

}  // namespace tandem
