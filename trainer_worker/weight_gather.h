// Full weights of one group at a time, gathered from the ranks' shards and laid out for the ops.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include <absl/status/statusor.h>

#include "common/comm/communicator.h"
#include "common/device/memory_region.h"
#include "trainer_worker/shard_plan.h"

namespace tandem {

// Two places to gather into: one for the global group, kept until Refresh or Release, and one for
// the layer at hand; backward gathers the layers again. Where memory allows, and with a single rank
// always, there is a place for every group instead, laid out once until the weights change. Group
// is collective where there are several ranks. Not thread-safe.
class WeightGather {
 public:
  // `compute` is this rank's shard in the plan's layout dtype; all pointers must outlive the
  // object. All groups have places if they take at most `resident_bytes`, the same on all ranks.
  static absl::StatusOr<std::unique_ptr<WeightGather>> Create(const ShardPlan* plan,
                                                              const std::byte* compute,
                                                              Communicator* communicator,
                                                              Ledger* ledger,
                                                              int64_t resident_bytes);

  // Takes the memory. Does nothing if it is held.
  absl::Status Map();
  // Gives it back; what Group returned is void.
  absl::Status Release();
  // The shard has new values.
  void Refresh();

  // The group's storage (ViewLayer, ViewGlobals); -1 is the global group. A layer's stays valid
  // until the next call for a layer.
  absl::StatusOr<const std::byte*> Group(int layer);

 private:
  WeightGather() = default;
  std::byte* Place(int layer) const;
  absl::Status Fill(int layer, std::byte* group);

  const ShardPlan* plan_ = nullptr;
  const std::byte* compute_ = nullptr;
  Communicator* communicator_ = nullptr;
  bool resident_ = false;
  std::unique_ptr<MemoryRegion> storage_;  // global group, then one layer or all
  std::unique_ptr<MemoryRegion> staging_;  // the ranks' shards of a group, one after the other
  std::vector<bool> filled_;               // [layers + 1]: Place(layer) holds that group
};

}  // namespace tandem
