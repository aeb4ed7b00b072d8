// Bytes that a model needs, as plain functions of its spec, which the memory plan adds up before a
// run. All results are bytes unless the name says otherwise.
#pragma once

#include <cstdint>

#include "common/memory/op_sizes.h"
#include "common/model_spec/model_spec.h"

namespace tandem {

// The memory that a region of `bytes` takes: whole pages of 2 MiB.
int64_t RegionBytes(int64_t bytes);

// K and V of one block of kKvBlockTokens tokens in one layer.
int64_t KvBlockLayerBytes(const ModelSpec& spec, int64_t element_bytes = 2);
// The same over all layers: the cost of one more block of the pool.
int64_t KvBlockBytesOfAllLayers(const ModelSpec& spec, int64_t element_bytes = 2);

// Elements of one decoder layer, and of everything outside the layers.
int64_t LayerParameters(const ModelSpec& spec);
int64_t GlobalParameters(const ModelSpec& spec);

// Rows [begin, end) of a tensor's dim 0 that `rank` of `world` owns (FSDP2: equal chunks rounded
// up, the last ranks may own fewer or none).
struct RowRange {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t rows() const { return end - begin; }
};
RowRange ShardRows(int64_t rows, int64_t rank, int64_t world);
// Elements that `rank` owns over all tensors, and of one layer's.
int64_t ShardParameters(const ModelSpec& spec, int64_t rank, int64_t world);
int64_t LayerShardParameters(const ModelSpec& spec, int64_t rank, int64_t world);

// Tensors of a group begin at multiples of this many bytes from the group's start.
inline constexpr int64_t kTensorAlignment = 256;
// Whether row-major tensors fill their groups without gaps: then a shard that has all rows already
// has the layout that a GPU's ops read.
bool RowMajorIsDense(const ModelSpec& spec, int64_t element_bytes = 2);

// Bytes of the model as it is executed, packed and padded (common/weights/layout.h): everything
// outside the layers, one layer, everything.
int64_t GlobalWeightBytes(const ModelSpec& spec, int64_t element_bytes = 2);
int64_t LayerWeightBytes(const ModelSpec& spec, int64_t element_bytes = 2);
int64_t WeightBytes(const ModelSpec& spec, int64_t element_bytes = 2);

// Elements that an optimizer step processes at a time, which is the size of each of the two buffers
// through which an offloaded array is streamed: one layer of the rank's shard.
int64_t OffloadWindowElements(int64_t layer_shard_elements);

// What a trainer may hold while its rollout generates: the device's memory without the rollout's
// share, less a tenth for everything that no ledger counts.
int64_t TrainerKeptBytes(int64_t device_bytes, double rollout_utilization);
// How much of that the slots of a weight sync may take and stay mapped between syncs.
int64_t KeptSlotBytes(int64_t kept_bytes);

// The groups in which weights are gathered: everything outside the layers, and each layer.
struct GroupSizes {
  int64_t global = 0;  // bytes
  int64_t layer = 0;   // bytes
  int64_t layers = 0;
  int64_t total() const { return global + layers * layer; }
};
// The sizes that a WeightLayout has.
GroupSizes WeightGroups(const ModelSpec& spec, int64_t element_bytes = 2, bool row_major = false);

// actor.fsdp_config.reshard_after_forward: whether a layer's gathered weights are freed after its
// forward pass and gathered again for backward. kAuto: yes, unless all of them take at most an
// eighth of what the trainer may hold.
enum class Reshard { kAuto, kAlways, kNever };

struct GatherOptions {
  int64_t ranks = 1;
  Reshard reshard = Reshard::kAuto;
  bool prefetch = true;    // actor.fsdp_config.forward_prefetch
  int64_t kept_bytes = 0;  // TrainerKeptBytes, which kAuto compares with
};

// Sizes of a rank's gather buffers, counted under the tag gather while the layers run.
struct GatherSizes {
  // Layers in memory at the same time; all of them for a single rank, which gathers nothing.
  int64_t layers = 0;
  int64_t places = 0;   // bytes of those layers and of the global group
  int64_t staging = 0;  // one group as it arrives from the ranks; 0 with a single rank
  int64_t total() const { return places + staging; }
};
GatherSizes GatherSizesOf(const GroupSizes& groups, const GatherOptions& options);

// The inputs that decide the size of a rollout's KV pool.
struct KvPoolPlan {
  double memory_utilization = 0.5;  // share of the device for weights and KV
  int64_t device_bytes = 0;
  int64_t weight_bytes = 0;  // of the mapped region
  int64_t max_num_seqs = 1;
  int64_t max_model_len = 1;  // tokens
};
// Blocks that fit beside the weights; with fewer than KvBlocksFor(max_model_len) no pool is
// possible.
int64_t FittingKvBlocks(const ModelSpec& spec, int64_t element_bytes, const KvPoolPlan& plan);
// Blocks for max_num_seqs sequences of max_model_len tokens, or as many as fit, if fewer.
int64_t KvPoolBlocks(const ModelSpec& spec, int64_t element_bytes, const KvPoolPlan& plan);

}  // namespace tandem
