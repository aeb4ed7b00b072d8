// One pass over the validation prompts.
#pragma once

#include <cstdint>

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
};

// Generates, scores and sums up under verl's names (algorithm/validation_metrics.h) by data source
// and reward key, and val/reward/mean over everything. The samples have ids of their own
// (kValidationEpoch), so that they never meet those of training. FailedPrecondition: no validation
// prompts.
absl::StatusOr<EvaluationRecord> Evaluate(const StepContext& context,
                                          const EvaluationRequest& request);

}  // namespace tandem
