#include "common/memory/worker_memory.h"

#include <algorithm>

#include "common/model_spec/row_ranges.h"
#include "common/types/tensor_view.h"

namespace tandem {
namespace {

constexpr int64_t kFloatBytes = 4;

int64_t GatherBytes(const ModelSpec& spec, const TrainerMemoryOptions& options) {
  const bool offloaded = options.reference && options.offload_reference;
  const bool computed = options.adapters > 0;  // by every gather, from base and adapters
  const bool in_place = options.gpu && options.pairs == 1 && !offloaded && !computed;
  if (in_place && RowMajorIsDense(spec, options.element_bytes)) return 0;
  GatherOptions gather = options.gather;
  gather.ranks = options.pairs;
  const GatherSizes sizes =
      GatherSizesOf(WeightGroups(spec, options.element_bytes, options.gpu), gather);
  return RegionBytes(sizes.places) + RegionBytes(sizes.staging);
}

int64_t GradientBytes(const ModelSpec& spec, const TrainerMemoryOptions& options, int64_t shard) {
  if (options.pairs == 1) return RegionBytes(kFloatBytes * shard);
  const int64_t buffers = GradientBuffers(spec.num_layers, options.gpu);
  return RegionBytes(kFloatBytes * shard) + RegionBytes(kFloatBytes * GlobalParameters(spec)) +
         RegionBytes(buffers * kFloatBytes * LayerParameters(spec));
}

// The longest range of any tensor of rank 0's shard.
int64_t LongestDigestRange(const ModelSpec& spec, const TrainerMemoryOptions& options) {
  int64_t bytes = 0;
  for (const TensorSpec& tensor : HfTensors(spec)) {
    const int64_t rows = ShardRows(tensor.shape[0], 0, options.pairs).rows();
    const int64_t cols = NumElements(tensor.shape) / tensor.shape[0];
    bytes = std::max(bytes, DigestRangeBytes(rows, cols, options.gpu));
  }
  return bytes;
}

// The base, which is the reference too, without masters, gradients and moments; adapters with all
// of them. In addition one layer's full gradients and, with several ranks, all adapters and their
// full gradients.
TrainerMemory LoraBytes(const ModelSpec& spec, const TrainerMemoryOptions& options) {
  const int64_t shard = std::max<int64_t>(1, ShardParameters(spec, 0, options.pairs));
  const int64_t mine = std::max<int64_t>(1, options.adapter_shard);
  const int64_t all = options.pairs > 1 ? RegionBytes(kFloatBytes * options.adapters) : 0;
  TrainerMemory memory;
  memory.master = RegionBytes(kFloatBytes * mine);
  memory.weights = RegionBytes(options.base_element_bytes * shard) + all;
  (options.offload_moments ? memory.optimizer_file : memory.optimizer) =
      2 * (options.offload_moments ? kFloatBytes * mine : RegionBytes(kFloatBytes * mine));
  if (options.offload_moments) {
    memory.optimizer_staging =
        4 * RegionBytes(kFloatBytes * std::min(OffloadWindowElements(mine), mine));
  }
  // Separate adapters get their gradients without the gradients of a layer's weights.
  const bool beside = spec.adapters.rank > 0;
  const int64_t layer = beside ? 0 : RegionBytes(kFloatBytes * LayerParameters(spec));
  memory.gradients = RegionBytes(kFloatBytes * mine) + layer + all;
  // A check reads the base and merges the adapters into it.
  const int64_t rows = RowScratchBytes(spec, options.element_bytes);
  memory.row_scratch = RegionBytes(2 * rows) + RegionBytes(rows);
  memory.digest_scratch = RegionBytes(LongestDigestRange(spec, options));
  memory.gather = GatherBytes(spec, options);
  return memory;
}

}  // namespace

int64_t GradientBuffers(int64_t layers, bool gpu) { return gpu ? std::min<int64_t>(2, layers) : 1; }

TrainerMemory TrainerBytes(const ModelSpec& spec, const TrainerMemoryOptions& options) {
  if (options.adapters > 0) return LoraBytes(spec, options);
  const int64_t shard = std::max<int64_t>(1, ShardParameters(spec, 0, options.pairs));
  const bool rounded = options.element_bytes != kFloatBytes;
  TrainerMemory memory;
  (options.offload_master ? memory.master_file : memory.master) =
      options.offload_master ? kFloatBytes * shard : RegionBytes(kFloatBytes * shard);
  if (rounded) memory.weights = RegionBytes(options.element_bytes * shard);
  if (options.reference) {
    (options.offload_reference ? memory.reference_file : memory.reference) =
        options.offload_reference ? options.element_bytes * shard
                                  : RegionBytes(options.element_bytes * shard);
  }
  (options.offload_moments ? memory.optimizer_file : memory.optimizer) =
      2 * (options.offload_moments ? kFloatBytes * shard : RegionBytes(kFloatBytes * shard));
  // Two buffers for each offloaded array, as large as one layer's part of the shard.
  const int64_t layer_shard = LayerShardParameters(spec, 0, options.pairs);
  const int64_t window = std::min(OffloadWindowElements(layer_shard), shard);
  const int64_t buffers = 2 * RegionBytes(kFloatBytes * window);
  if (options.offload_master) memory.master_staging = buffers;
  if (options.offload_moments) memory.optimizer_staging = 2 * buffers;
  memory.gradients = GradientBytes(spec, options, shard);
  memory.gather = GatherBytes(spec, options);
  memory.row_scratch = RegionBytes(RowScratchBytes(spec, options.element_bytes));
  return memory;
}

int64_t ActivationBudget(const TrainerMemory& memory, int64_t device_bytes) {
  return std::max<int64_t>(0, (device_bytes - memory.device_bytes()) / 2);
}

Keep KeepForBackward(const ModelSpec& spec,
                     int64_t element_bytes,
                     const BatchShape& largest,
                     Recompute recompute,
                     int64_t budget_bytes) {
  if (recompute == Recompute::kAlways) return Keep::kLayerInputs;
  if (recompute == Recompute::kNever) return Keep::kEverything;
  const int64_t bytes = PlaceMicroBatch(spec, element_bytes, largest, Keep::kEverything).end;
  return bytes <= budget_bytes ? Keep::kEverything : Keep::kLayerInputs;
}

}  // namespace tandem
