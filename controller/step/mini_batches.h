// How a step's groups become mini-batches, and mini-batches shards.
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

// Deals whole groups, `mini_batch_prompts` each, in order or (shuffle) in an order that is a pure
// function of seed, step and epoch, and gives every sample its mini-batch and rank in the store.
std::vector<MiniBatch> PlanMiniBatches(
    const TrainOptions& options, int64_t step, int64_t epoch, int ranks, SampleStore& samples);

// How many of a step's mini-batches, of all epochs, are trained.
struct UpdateCount {
  int64_t updates = 0;
  int64_t left_out = 0;  // without a token to train on: all were rejected
};

// Assigns samples on the way as PlanMiniBatches does.
UpdateCount CountUpdates(const TrainOptions& options,
                         int64_t step,
                         int ranks,
                         SampleStore& samples);

}  // namespace tandem
