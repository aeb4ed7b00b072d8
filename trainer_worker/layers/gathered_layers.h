// Full weights of one group at a time, gathered from the ranks' shards and laid out for the ops.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include <absl/status/statusor.h>

#include "common/comm/ordered_communicator.h"
#include "common/device/device.h"
#include "common/device/file_region.h"
#include "common/memory/memory_formulas.h"
#include "trainer_worker/shard/shard_plan.h"
#include "trainer_worker/shard/weight_rows.h"

namespace tandem {

// Places to gather into: one for the global group, kept until Refresh or Release, and as many for
// layers as GatherSizesOf says. One: the layer at hand. Two: also the next one, which the
// communication thread gathers while the layer at hand computes. All: every layer stays until the
// weights change; a single rank has all, and what it calls gathering is laying out its own shard,
// which is left where it lies if it is in a GPU's memory and laid out already (ShardPlan).
// Reading a group from a file is a part of gathering it; rows that are made are made by the caller,
// who has the ops. On a GPU the communication thread only
// collects the ranks' shards; laying them out is the caller's, in the order of its device's work. A
// single rank's offloaded shard comes to a GPU on a stream of its own, a layer while the one before
// it computes; with several ranks its part of a group is copied in the order of the work.
// Group and Prefetch are collective where there are several ranks. Not thread-safe.
class WeightGather {
 public:
  // All pointers must outlive the object, only `communicator` may end before it. `options.ranks` is
  // the plan's.
  static absl::StatusOr<std::unique_ptr<WeightGather>> Create(Device* device,
                                                              const ShardPlan* plan,
                                                              WeightRows* rows,
                                                              OrderedCommunicator* communicator,
                                                              Ledger* ledger,
                                                              GatherOptions options);
  // Waits for what is being gathered.
  ~WeightGather();

  // Takes the memory. Does nothing if it is held, or if the policy needs none.
  absl::Status Map();
  // Gives it back; what Group returned is void.
  absl::Status Release();
  // The shard gets or has new values; what Group returned is void. Waits for what is being
  // gathered.
  void Refresh();
  // Gathers another policy from now on: the same one on all ranks. Does nothing if it is the one.
  // Map comes next, as it may need memory where the one before needed none.
  void Use(WeightRows* rows);

  // The group's storage (ViewLayer, ViewGlobals); -1 is the global group, which stays valid. A
  // layer's is valid until Group is called for a layer other than it and its neighbours.
  // InvalidArgument: there is no such layer.
  absl::StatusOr<const std::byte*> Group(int layer);
  // Starts gathering the layer after or before the one that Group gave last; none where that was
  // the last or the first. After the global group the next layer is the first. Does nothing without
  // options.prefetch, and where a single rank has its shard in the device's memory. Errors come
  // from the Group that asks for the layer.
  enum class Next { kAfter, kBefore };
  void Prefetch(Next next);

 private:
  static constexpr int kEmpty = -2;
  struct Place {
    int layer = kEmpty;                  // that lies there or is on its way
    OrderedCommunicator::Result filled;  // of Prefetch, until Group has seen it
    bool uploading = false;              // the same, of a GPU's single rank
  };

  WeightGather(Device* device,
               const ShardPlan* plan,
               WeightRows* rows,
               OrderedCommunicator* communicator)
      : device_(device),
        plan_(plan),
        rows_(rows),
        source_(rows->stored()),
        communicator_(communicator) {}
  // Whether Group gives what lies in the shard itself.
  bool in_place() const {
    return !device_->is_host() && !source_.offloaded && is_stored() && plan_->is_laid_out();
  }
  bool is_stored() const { return source_.data != nullptr; }
  // Index into places_.
  size_t IndexOf(int layer) const;
  std::byte* Address(int layer) const;
  // Brings a group to its place, on a GPU of several ranks to staging_.
  absl::Status FillNow(int layer);
  // What the communication thread does for a group, or the caller: all of it on a CPU but for rows
  // that are made, the collective alone on a GPU.
  OrderedCommunicator::Work FillOf(int layer);
  absl::Status Fill(int layer, Communicator& group);
  // This rank's part of a group goes to its place in staging_ before it is collected: rows that are
  // made, and an offloaded source on a GPU, where a collective reads device memory.
  bool StagesMine() const {
    const bool uploads = !device_->is_host() && source_.offloaded;
    return plan_->world_size() > 1 && (uploads || !is_stored());
  }
  absl::Status StageMine(int layer);
  absl::StatusOr<const std::byte*> GroupOnDevice(int layer);
  absl::Status LayOutPrefetched();
  absl::Status Collect(int layer, Communicator& group);
  // Of a source that makes its rows: this rank's part of a group.
  absl::Status MakeMine(int layer, std::byte* to);
  // The same of a single rank, into the layer's place, on a CPU by ranges of rows.
  bool LaysOutMade() const { return !is_stored() && plan_->world_size() == 1; }
  absl::Status LayOutMade(int layer);
  // Whether a layer is prefetched by uploads_.
  bool Uploads() const {
    return !device_->is_host() && source_.offloaded && plan_->world_size() == 1;
  }
  absl::Status Upload(int layer);
  // What is uploading is there for work that is enqueued from now on.
  absl::Status JoinUploads();
  // By `beside`, or in the order of the device's work if it is null.
  absl::Status LayOut(int layer, UploadStream* beside = nullptr);
  // Of a row in a GPU's layer.
  std::byte* AddressOf(int layer, const TensorPlace& place, int64_t row) const;
  absl::Status WriteRows(int layer,
                         const TensorPlace& place,
                         const ShardPlan::Piece& piece,
                         const std::byte* from,
                         UploadStream* beside);
  // This rank's part of a group, in bytes of its shard.
  int64_t MyOffset(int layer) const;
  int64_t BytesOf(int layer, int rank) const;

  Device* const device_;
  const ShardPlan* const plan_;
  WeightRows* rows_;
  StoredShard source_;
  OrderedCommunicator* const communicator_;
  bool prefetch_ = false;
  int last_ = -1;                          // group that Group gave
  std::unique_ptr<MemoryRegion> storage_;  // the places' bytes
  std::unique_ptr<MemoryRegion> staging_;  // the ranks' shards of a group, one after the other
  std::vector<std::byte> made_;            // a range of rows that were made, of a single rank
  std::vector<Place> places_;              // the global group's, then the layers'
  std::unique_ptr<UploadStream> uploads_;  // from the first layer on that is prefetched by it
};

}  // namespace tandem
