// How the samples of a step are generated. Assembly chooses a mode; the train loop does not know
// which.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include "controller/data/prompt.h"
#include "controller/step/step_batch.h"

namespace tandem {

// Used by one thread, the train loop's.
class GenerationMode {
 public:
  virtual ~GenerationMode() = default;

  // Before the step begins: draws the prompts that are known to be needed. Errors as DrawPrompts.
  virtual absl::Status Prepare(StepBatch& batch) = 0;
  // Adds groups to `batch` and their samples to the sample store, `missing` complete ones at least,
  // with weights of batch.version. Called again with what dynamic sampling still lacks. Errors as
  // DrawPrompts, Serving::Generate, and those of the sample store.
  virtual absl::Status Generate(StepBatch& batch, int64_t missing) = 0;

  // May begin to generate for later batches while the trainers train on `batch`.
  virtual void StartBackground(const StepBatch& batch) = 0;
  // True from a StartBackground that began something to StopBackground or RollBackStep: rollouts
  // must stay awake.
  virtual bool background_running() const = 0;
  // Ends it, if it runs, and waits. Its error does not undo the step: it is for the step's end,
  // unless a worker was lost.
  virtual absl::Status StopBackground(StepBatch& batch) = 0;

  // The step has changed the weights: what is kept for later steps stays as it is now.
  virtual void CommitStep() = 0;
  // The step is dropped: ends generation in the background, and what is kept is again what the last
  // commit left.
  virtual void RollBackStep() = 0;

  // What is kept for later steps, in a checkpoint's folder that holds the state after `step`.
  virtual absl::Status Save(const std::string& checkpoint, int64_t step) const = 0;
  // An empty path: the run begins. DataLoss, InvalidArgument and others: what is there does not fit
  // this run.
  virtual absl::Status Restore(const std::string& checkpoint, int64_t step) = 0;
  // No recovery goes back behind `step`.
  virtual absl::Status ForgetBefore(int64_t step) = 0;
};

// The next `count` prompts. OutOfRange: the training data was passed over so often that sample ids
// end. Else as PromptSource::NextBatch.
absl::StatusOr<std::vector<Prompt>> DrawPrompts(PromptSource& prompts, int64_t count);

}  // namespace tandem
