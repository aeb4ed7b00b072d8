// The group of ranks, and how a new group can be joined while a collective of the old one hangs.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/time/time.h>

#include "common/backend/backend.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/comm/communicator.h"
#include "common/comm/group_hosts.h"
#include "common/comm/watched_communicator.h"
#include "common/types/worker_load.h"

namespace tandem {

struct GroupOptions {
  int rank = 0;
  int world_size = 1;
  std::string rendezvous;
  int64_t generation = 0;
  absl::Duration deadline = absl::Seconds(600);
  bool single_channel = false;  // NcclOptions
  // Where the ranks are; no members: all on this host.
  GroupHosts hosts;
};

// Join, Leave, communicator and generation are for the engine thread; Interrupt and last_collective
// are for any other.
class RankGroup {
 public:
  // `backend`, through which ranks exchange device memory, outlives the group.
  explicit RankGroup(Backend* backend) : backend_(backend) {}
  // Leaves the old group and joins a new one. Aborted: Interrupt was called for a newer generation.
  absl::Status Join(const GroupOptions& options);
  void Leave();
  // These take no lock, as only the engine thread, which calls them, changes the values.
  Communicator* communicator() ABSL_NO_THREAD_SAFETY_ANALYSIS { return communicator_.get(); }
  int64_t generation() const ABSL_NO_THREAD_SAFETY_ANALYSIS { return generation_; }

  // Makes collectives and joins of generations before `generation` fail at once. INT64_MAX
  // interrupts every generation.
  void Interrupt(int64_t generation, const std::string& reason);
  // Of this rank, in whichever group.
  CollectiveNote last_collective() const { return collectives_.Last(); }

 private:
  Backend* const backend_;
  CollectiveLog collectives_{RealClock()};
  Mutex group_mutex_;
  std::shared_ptr<Communicator> communicator_ ABSL_GUARDED_BY(group_mutex_);
  std::atomic<bool> cancelled_ = false;  // ends the join in progress
  // The generation of the group, or of the join in progress.
  int64_t generation_ ABSL_GUARDED_BY(group_mutex_) = -1;
  // The newest generation that Interrupt was called for.
  int64_t wanted_ ABSL_GUARDED_BY(group_mutex_) = -1;
};

}  // namespace tandem
