// The state that a run with partial rollout carries from step to step, as assembly opens it.
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

// Checks that a run can continue with the groups that `checkpoint` carries, after `step` finished
// steps: ReadFittingBuffer, and CheckWholeGroups one step off, or CheckNoBuffer where the run
// carries none. Changes nothing.
absl::Status CheckCarriedGroups(const v1::Config& config,
                                const TrainOptions& train,
                                const RunInputs& inputs,
                                const std::string& checkpoint,
                                int64_t step);

// How a run chooses its checkpoint: its carried groups, its adapters (CheckResumedAdapters) and its
// inputs (TrainOptions::inputs, or PinInputs where they are not filled) must fit the run. The
// result refers to the arguments.
ResumeOptions MakeResumeOptions(const v1::Config& config,
                                const TrainOptions& train,
                                const RunInputs& inputs,
                                std::string launch_id = "");

struct OpenedRounds {
  std::unique_ptr<RoundRunner> runner;
  // The runner's. It must be cleared once the earlier run is set aside, if the whole of it is.
  RoundJournal* journal = nullptr;
};

// For a run with partial rollout. The buffer is empty until the train loop loads it; warnings about
// the journal are added to `resume`. Errors as RolloutBuffer::Open and RoundJournal::Open.
absl::StatusOr<OpenedRounds> OpenRounds(const v1::Config& config,
                                        const TrainOptions& train,
                                        const RunInputs& inputs,
                                        ResumePoint& resume);

}  // namespace tandem
