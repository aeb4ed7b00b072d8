// Scratch of the CPU's ops (tag workspace): the most that a process holds after the largest batch
// of a run. It grows with the data, so a process may hold less.
#pragma once

#include <cstdint>

#include "common/memory/activation_bytes.h"
#include "common/model_spec/model_spec.h"

namespace tandem {

struct ScratchOptions {
  int64_t element_bytes = 2;
  int64_t threads = 1;
  int64_t sequence_tokens = 1;  // the longest context
  int64_t batched_tokens = 1;   // of a rollout's largest step
  bool adapters_drop = false;   // a trainer's separate adapters: model.lora.dropout above 0
};

// Forward and backward ops of a trainer whose micro-batches are at most that large.
int64_t TrainerScratchBytes(const ModelSpec& spec,
                            const ScratchOptions& options,
                            const BatchShape& largest);

// Forward ops of a rollout that samples with top-k or top-p (filtered) or without.
int64_t RolloutScratchBytes(const ModelSpec& spec, const ScratchOptions& options, bool filtered);

}  // namespace tandem
