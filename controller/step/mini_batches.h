// Divides a step's groups into mini-batches, and each mini-batch between the ranks.
#pragma once

#include <cstdint>
#include <vector>

#include "controller/step/train_options.h"
#include "controller/store/sample_store.h"

namespace tandem {

struct MiniBatch {
  int64_t index = 0;
  int64_t samples = 0;
  int64_t trained_tokens = 0;  // of the responses
};

// Assigns complete groups, `mini_batch_prompts` to a mini-batch, in order or (shuffle) in an order
// that is a pure function of seed, step and epoch. Records every sample's mini-batch and rank in
// the store.
std::vector<MiniBatch> PlanMiniBatches(
    const TrainOptions& options, int64_t step, int64_t epoch, int ranks, SampleStore& samples);

// The number of a step's mini-batches, over all epochs, that are trained or skipped.
struct UpdateCount {
  int64_t updates = 0;
  int64_t left_out = 0;  // without a trained token: all were rejected
};

// Assigns samples in the store, as PlanMiniBatches does.
UpdateCount CountUpdates(const TrainOptions& options,
                         int64_t step,
                         int ranks,
                         SampleStore& samples);

}  // namespace tandem
