// What a run with partial rollout carries from step to step.
#pragma once

#include <memory>

#include <absl/status/statusor.h>

#include "common/config/config.h"
#include "controller/partial/partial_rollout.h"
#include "controller/resume_point.h"
#include "controller/run_inputs.h"
#include "controller/train_options.h"

namespace tandem {

// Null where partial rollout is off, or a run only checks. The pool is empty until the train loop
// loads it, which is tried here; warnings about the journal go to `resume`. FailedPrecondition: the
// checkpoint has groups that a run without partial rollout would drop (CheckNoPool). Else as
// SamplePool::Open and CutJournal::Open.
absl::StatusOr<std::unique_ptr<PartialRollout>> OpenPartial(const v1::Config& config,
                                                            const TrainOptions& train,
                                                            const RunInputs& inputs,
                                                            ResumePoint& resume);

}  // namespace tandem
