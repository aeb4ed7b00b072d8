// Full weights of one group at a time (the global group, or one layer), in the layout that the ops
// read.
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

// The layers of one policy, for any number of passes. Layer and Prefetch are collective if there
// are several ranks. Not thread-safe: used by the engine thread.
class LayerSource {
 public:
  virtual ~LayerSource() = default;

  // Allocates the memory for the layers, or takes it over from another policy's source. Must be
  // called before every pass. ResourceExhausted: there is not enough memory.
  virtual absl::Status Map() = 0;
  // Called when the policy's values change: layers that were returned are invalid. Waits for layers
  // that are being prefetched.
  virtual void Invalidate() = 0;
  // Returns the group's storage (ViewLayer, ViewGlobals); -1 is the global group, which stays
  // valid. A layer stays valid until Layer is called for a layer that is neither that one nor one
  // of its neighbours. InvalidArgument: the model has no such layer.
  virtual absl::StatusOr<const std::byte*> Layer(int layer) = 0;
  // Starts to load a layer while the one before it computes, if that saves time; does nothing for a
  // layer that the model does not have. Errors are returned by the call of Layer for it.
  virtual void Prefetch(int layer) = 0;
};

// The memory in which layers are laid out. The sources of a session's policies share it and use it
// one at a time, so that the reference policy needs no memory of its own. It has a slot for the
// global group, and slots for layers (their number: GatherSizesOf). One: for the layer in use. Two:
// also for the next one, which the communication thread gathers while the layer in use computes.
// All: every layer stays until the weights change; a single rank has all. Not thread-safe.
class LayerBuffers {
 public:
  static constexpr int kEmpty = -2;
  struct Slot {
    int layer = kEmpty;  // the layer that is stored in the slot or is being loaded
    // Valid from a gathering Prefetch until Layer has waited for it.
    OrderedCommunicator::Result filled;
    bool uploading = false;  // from an uploading Prefetch until its copies are joined
  };

  // `plan` and `ledger` outlive the buffers; `options.ranks` is replaced by the plan's. Tag gather.
  static absl::StatusOr<std::unique_ptr<LayerBuffers>> Create(Device* device,
                                                              const ShardPlan* plan,
                                                              Ledger* ledger,
                                                              GatherOptions options);

  // Allocates the memory if it is not allocated, and makes `owner` its owner; the previous owner's
  // layers are invalidated.
  absl::Status MapFor(LayerSource* owner);
  // Releases the memory; layers in it become invalid.
  absl::Status Release();
  bool is_owned_by(const LayerSource* source) const { return owner_ == source; }
  void Disown(const LayerSource* source) {
    if (owner_ == source) owner_ = nullptr;
  }

  bool prefetches() const { return prefetch_; }
  std::vector<Slot>& slots() { return slots_; }
  Slot& slot(int layer) { return slots_[IndexOf(layer)]; }
  std::byte* Address(int layer) const;
  // The ranks' shards of one group, one after another; not available with a single rank.
  std::byte* staging() const { return staging_->data(); }

 private:
  explicit LayerBuffers(const ShardPlan* plan) : plan_(plan) {}
  size_t IndexOf(int layer) const {
    return layer < 0 ? 0 : 1 + static_cast<size_t>(layer) % (slots_.size() - 1);
  }

  const ShardPlan* const plan_;
  bool prefetch_ = false;
  LayerSource* owner_ = nullptr;           // whose layers are in the slots
  std::unique_ptr<MemoryRegion> storage_;  // the memory of the slots
  std::unique_ptr<MemoryRegion> staging_;
  std::vector<Slot> slots_;  // the global group's slot, then the layers' slots
};

// Chooses the implementation by the device, the number of ranks and the storage of the rows: layers
// that are already laid out in a GPU's shard, that a single rank lays out from its rows, that a
// single rank uploads to a GPU, or that are gathered. All pointers outlive the source, except that
// `communicator` may be destroyed before it.
std::unique_ptr<LayerSource> MakeLayerSource(WeightRows* rows,
                                             LayerBuffers* buffers,
                                             OrderedCommunicator* communicator);

}  // namespace tandem
