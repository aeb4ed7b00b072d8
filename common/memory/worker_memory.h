// What a trainer takes for its model, by the ledger's tags: the trainer decides by these functions
// and the memory plan adds them up. Bytes as the ledger counts them: regions in whole 2 MiB pages,
// of rank 0, whose shard is the largest.
#pragma once

#include <cstdint>

#include "common/memory/activation_bytes.h"
#include "common/memory/memory_formulas.h"
#include "common/model_spec/model_spec.h"

namespace tandem {

// How a trainer holds its model.
struct TrainerMemoryOptions {
  int64_t pairs = 1;
  int64_t element_bytes = 2;  // of the compute dtype
  bool reference = false;     // a reference policy is kept
  bool offload_master = false;
  bool offload_moments = false;
  bool offload_reference = false;
  // LoRA: elements of all adapters, and of rank 0's part of them; 0: all weights are trained.
  int64_t adapters = 0, adapter_shard = 0;
  int64_t base_element_bytes = 2;  // of the base under LoRA
  bool gpu = false;                // else a CPU
  GatherOptions gather;            // its ranks are the pairs
};

struct TrainerMemory {
  // In the device's memory, or in `*_file` where they are offloaded.
  int64_t master = 0, weights = 0, reference = 0, optimizer = 0;
  int64_t master_file = 0, reference_file = 0, optimizer_file = 0;
  // Buffers that offloaded masters and moments are streamed through in an optimizer step; an
  // offloaded reference is gathered from its file.
  int64_t master_staging = 0, optimizer_staging = 0;
  int64_t gradients = 0;  // this rank's shard; of several ranks also full ones of groups
  // Gathered weights, and the ranks' shards of one group; 0 where a GPU's single rank reads its
  // shards in place.
  int64_t gather = 0;
  // Under the tag gather, while weights that are made are digested, after a step: a range of them.
  int64_t digest_scratch = 0;
  // Under the tag gather, while a checkpoint exports the model and while weights are checked: the
  // buffer on every rank into which ranges of rows are gathered (row_ranges.h).
  int64_t row_scratch = 0;

  // All bytes on the device while it trains, without activations and scratch.
  int64_t device_bytes() const {
    return master + weights + reference + optimizer + gradients + gather;
  }
};

TrainerMemory TrainerBytes(const ModelSpec& spec, const TrainerMemoryOptions& options);

// Full gradients of layers that several ranks hold at once: of the one that computes and, on a GPU,
// of the one that is summed over ranks meanwhile.
int64_t GradientBuffers(int64_t layers, bool gpu);

// Limit of activations by model.enable_gradient_checkpointing=auto: half of the device's memory
// that the trainer's other arrays leave. The other half is for the rollout and for scratch.
int64_t ActivationBudget(const TrainerMemory& memory, int64_t device_bytes);

// model.enable_gradient_checkpointing: whether backward runs every layer's forward again; kAuto:
// where keeping all activations would take more than the budget. The bits are the same.
enum class Recompute { kAuto, kAlways, kNever };
Keep KeepForBackward(const ModelSpec& spec,
                     int64_t element_bytes,
                     const BatchShape& largest,
                     Recompute recompute,
                     int64_t budget_bytes);

}  // namespace tandem
