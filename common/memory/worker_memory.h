// Bytes that a trainer takes for its model, by the ledger's tags. The trainer itself decides by
// these functions, and the memory plan adds them up. Bytes as the ledger counts them: regions in
// whole pages of 2 MiB, for rank 0, whose shard is the largest.
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
  int64_t base_element_bytes = 2;  // of the base, if LoRA trains adapters
  bool gpu = false;                // else a CPU
  GatherOptions gather;            // its ranks are set from the pairs
};

struct TrainerMemory {
  // In device memory; the `*_file` members are for arrays that are offloaded.
  int64_t master = 0, weights = 0, reference = 0, optimizer = 0;
  int64_t master_file = 0, reference_file = 0, optimizer_file = 0;
  // Buffers through which an optimizer step streams offloaded masters and moments; an offloaded
  // reference is gathered from its file instead.
  int64_t master_staging = 0, optimizer_staging = 0;
  int64_t gradients = 0;  // this rank's shard and, with several ranks, full gradients of groups
  // Gathered weights, and the ranks' shards of one group; 0 if a GPU's single rank reads its shards
  // in place.
  int64_t gather = 0;
  // Under the tag gather: a range of weights that are made by merging and digested after a step.
  int64_t digest_scratch = 0;
  // Under the tag gather, while a checkpoint exports the model or weights are checked: the buffer
  // into which every rank gathers ranges of rows (row_ranges.h).
  int64_t row_scratch = 0;

  // All bytes on the device while it trains, without activations and scratch.
  int64_t device_bytes() const {
    return master + weights + reference + optimizer + gradients + gather;
  }
};

TrainerMemory TrainerBytes(const ModelSpec& spec, const TrainerMemoryOptions& options);

// Full gradients of layers that several ranks hold at the same time: those of the layer that
// computes and, on a GPU, those of the layer that is being summed over ranks.
int64_t GradientBuffers(int64_t layers, bool gpu);

// Limit of activations for model.enable_gradient_checkpointing=auto: half of the device memory that
// the trainer's other arrays leave. The other half is for the rollout and for scratch.
int64_t ActivationBudget(const TrainerMemory& memory, int64_t device_bytes);

// model.enable_gradient_checkpointing: whether backward runs every layer's forward again. kAuto: if
// keeping all activations would exceed the budget. The bits are the same.
enum class Recompute { kAuto, kAlways, kNever };
Keep KeepForBackward(const ModelSpec& spec,
                     int64_t element_bytes,
                     const BatchShape& largest,
                     Recompute recompute,
                     int64_t budget_bytes);

}  // namespace tandem
