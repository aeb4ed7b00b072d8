#include "trainer_worker/rank_group.h"

#include <algorithm>

#include "common/base/status.h"

namespace tandem {

absl::Status RankGroup::Join(const GroupOptions& options) {
  Leave();
  {
    const MutexLock lock(group_mutex_);
    if (wanted_ > options.generation) {
      return MakeStatus(absl::StatusCode::kAborted,
                        "generation {} of the group was replaced by {} before it was formed",
                        options.generation, wanted_);
    }
    generation_ = options.generation;
    cancelled_ = false;
  }
  SharedMemoryGroupOptions group;
  group.rank = options.rank;
  group.world_size = options.world_size;
  group.rendezvous = options.rendezvous;
  group.generation = options.generation;
  group.deadline = options.deadline;
  group.cancelled = &cancelled_;
  group.single_channel = options.single_channel;
  group.hosts = &options.hosts;
  TANDEM_ASSIGN_OR_RETURN(std::unique_ptr<Communicator> joined, backend_->JoinGroup(group));
  const MutexLock lock(group_mutex_);
  communicator_ = std::make_shared<WatchedCommunicator>(std::move(joined), collectives_);
  if (wanted_ > generation_) communicator_->Abort("a newer group is being formed");
  return absl::OkStatus();
}

void RankGroup::Leave() {
  std::shared_ptr<Communicator> old;
  const MutexLock lock(group_mutex_);
  old.swap(communicator_);
  generation_ = -1;
}

void RankGroup::Interrupt(int64_t generation, const std::string& reason) {
  const MutexLock lock(group_mutex_);
  wanted_ = std::max(wanted_, generation);
  if (generation <= generation_) return;
  cancelled_ = true;
  if (communicator_ != nullptr) communicator_->Abort(reason);
}

}  // namespace tandem
