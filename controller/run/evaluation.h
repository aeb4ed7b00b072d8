// One pass over the validation prompts.
#pragma once

#include <cstdint>
#include <functional>

#include <absl/status/statusor.h>

#include "controller/step/step_context.h"
#include "controller/step/train_options.h"
#include "controller/store/run_store.h"

namespace tandem {

struct EvaluationRequest {
  int64_t step = 0;
  int64_t version = 0;
  int64_t samples = 1;  // per prompt
  SamplingParams sampling;
  int64_t max_prompts = 0;  // 0: all
  BudgetOwner budget_owner = BudgetOwner::kRun;
  std::function<bool()> abandoned;  // FleetGenerateOptions
};

// Generates and scores the validation samples. The metrics have verl's names
// (algorithm/validation_metrics.h) by data source and reward key, and val/reward/mean over all
// prompts. Sample ids use kValidationEpoch, so that they never collide with those of training.
// FailedPrecondition: there are no validation prompts.
absl::StatusOr<EvaluationRecord> Evaluate(const StepContext& context,
                                          const EvaluationRequest& request);

}  // namespace tandem
