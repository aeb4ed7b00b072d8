// Full weights of one group at a time (the global group, or one layer), laid out for the ops.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include <absl/status/statusor.h>

#include "common/comm/ordered_communicator.h"
#include "common/device/device.h"
#include "common/memory/memory_formulas.h"
#include "trainer_worker/shard/shard_plan.h"
#include "trainer_worker/shard/weight_rows.h"

namespace tandem {

// The layers of one policy, for one pass after another. Layer and Prefetch are collective where
// there are several ranks. Not thread-safe: the engine thread's.
class LayerSource {
 public:
  virtual ~LayerSource() = default;

  // Allocates the memory that the layers are laid out in, and takes it over from another policy.
  // Comes before the layers of every pass. ResourceExhausted: there is no memory.
  virtual absl::Status Map() = 0;
  // The policy has or gets new values: layers that were returned are invalid. Waits for those that
  // are on their way.
  virtual void Invalidate() = 0;
  // The group's storage (ViewLayer, ViewGlobals); -1 is the global group, which stays valid. A
  // layer is valid until Layer is called for one other than it and its neighbours. InvalidArgument:
  // the model has no such layer.
  virtual absl::StatusOr<const std::byte*> Layer(int layer) = 0;
  // Starts to bring a layer in while the one before it computes, where that saves time; does
  // nothing for a layer that the model does not have. Errors are returned by the Layer that asks
  // for it.
  virtual void Prefetch(int layer) = 0;
};

// The memory that layers are laid out in. The sources of a session's policies share it, one at a
// time, so that the reference policy needs no second memory. It has a slot for the global group,
// and as many for layers as GatherSizesOf says. One: the layer at hand. Two: also the next one,
// which the communication thread gathers while the layer at hand computes. All: every layer stays
// until the weights change; a single rank has all. Not thread-safe.
class LayerBuffers {
 public:
  static constexpr int kEmpty = -2;
  struct Slot {
    int layer = kEmpty;                  // that is stored there or is on its way
    OrderedCommunicator::Result filled;  // valid from a gathering Prefetch until Layer has seen it
    bool uploading = false;              // from an uploading Prefetch until its copies are joined
  };

  // `plan` and `ledger` outlive the buffers; `options.ranks` becomes the plan's. Tag gather.
  static absl::StatusOr<std::unique_ptr<LayerBuffers>> Create(Device* device,
                                                              const ShardPlan* plan,
                                                              Ledger* ledger,
                                                              GatherOptions options);

  // Allocates the memory if that has not been done, for `owner`, which the owner before it is
  // invalidated for.
  absl::Status MapFor(LayerSource* owner);
  // Releases the memory; layers in it are invalid.
  absl::Status Release();
  bool is_owned_by(const LayerSource* source) const { return owner_ == source; }
  void Disown(const LayerSource* source) {
    if (owner_ == source) owner_ = nullptr;
  }

  bool prefetches() const { return prefetch_; }
  std::vector<Slot>& slots() { return slots_; }
  Slot& slot(int layer) { return slots_[IndexOf(layer)]; }
  std::byte* Address(int layer) const;
  // The ranks' shards of one group, one after the other; there is none with a single rank.
  std::byte* staging() const { return staging_->data(); }

 private:
  explicit LayerBuffers(const ShardPlan* plan) : plan_(plan) {}
  size_t IndexOf(int layer) const {
    return layer < 0 ? 0 : 1 + static_cast<size_t>(layer) % (slots_.size() - 1);
  }

  const ShardPlan* const plan_;
  bool prefetch_ = false;
  LayerSource* owner_ = nullptr;           // of the layers in the slots
  std::unique_ptr<MemoryRegion> storage_;  // the slots' bytes
  std::unique_ptr<MemoryRegion> staging_;
  std::vector<Slot> slots_;  // the global group's, then the layers'
};

// Picks the kind by the device, the number of ranks and where the rows are stored: layers that a
// GPU's shard has laid out already, that a single rank lays out of its rows, that it uploads to a
// GPU, or that are gathered. All pointers outlive the source, only `communicator` may end before
// it.
std::unique_ptr<LayerSource> MakeLayerSource(WeightRows* rows,
                                             LayerBuffers* buffers,
                                             OrderedCommunicator* communicator);

}  // namespace tandem
