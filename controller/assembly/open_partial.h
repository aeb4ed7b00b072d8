// What a run with partial rollout carries from step to step.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include "common/config/config.h"
#include "controller/assembly/run_inputs.h"
#include "controller/partial_rollout/round_runner.h"
#include "controller/run/resume_point.h"
#include "controller/step/train_options.h"

namespace tandem {

// Whether such a run can go on with the groups that `checkpoint` carries, after `step` finished
// steps: ReadFittingPool, or CheckNoPool where partial rollout is off. Changes nothing.
absl::Status CheckCarriedGroups(const v1::Config& config,
                                const TrainOptions& train,
                                const RunInputs& inputs,
                                const std::string& checkpoint,
                                int64_t step);

// How such a run chooses its checkpoint: what it holds, groups and adapters (CheckResumedAdapters),
// has to fit. Refers to the arguments.
ResumeOptions ResumeOptionsOf(const v1::Config& config,
                              const TrainOptions& train,
                              const RunInputs& inputs,
                              std::string launch_id = "");

// Null where partial rollout is off, or a run only checks. The pool is empty until the train loop
// loads it; warnings about the journal go to `resume`. Errors as SamplePool::Open and
// CutJournal::Open.
absl::StatusOr<std::unique_ptr<PartialRollout>> OpenPartial(const v1::Config& config,
                                                            const TrainOptions& train,
                                                            const RunInputs& inputs,
                                                            ResumePoint& resume);

}  // namespace tandem
