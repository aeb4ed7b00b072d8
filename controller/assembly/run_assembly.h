// Builds a run from its configuration and runs it. Besides main.cc, the only file that knows every
// concrete type of the controller.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include "common/base/build_info.h"
#include "common/config/config.h"
#include "common/process/exit_code.h"
#include "controller/assembly/run_inputs.h"
#include "controller/partial_rollout/round_runner.h"
#include "controller/run/resume_point.h"
#include "controller/run/run_control.h"
#include "controller/step/train_options.h"
#include "controller/workers/worker_pool.h"
#include "tandem/v1/config.pb.h"

namespace tandem {

struct AssemblyOptions {
  v1::Config config;  // resolved and validated
  StartMode start = StartMode::kTrain;
  std::string launch_id;  // see ResumeOptions
  BuildInfo build;        // of the program
};

// Lifecycle: Create (loads and checks all inputs; no server runs yet) -> Run -> destructor.
class Assembly {
 public:
  // Every error concerns the model, the data or the run directory: FailedAt::kInputs.
  static absl::StatusOr<std::unique_ptr<Assembly>> Create(const AssemblyOptions& options);
  virtual ~Assembly() = default;

  // Serves and trains until the run ends, then stops the workers. Blocks.
  virtual absl::Status Run() = 0;
  // Valid after Run: the stage in which it failed. kInputs: a model or checkpoint could not be
  // loaded.
  virtual FailedAt failed_at() const = 0;
  // Ends the run soon, with a checkpoint of the finished steps. May be called by any thread, and
  // before Run.
  virtual void StopNow() = 0;
};

// The state that a run with partial rollout carries from step to step.

// Checks that such a run can continue with the groups that `checkpoint` carries, after `step`
// finished steps: ReadFittingBuffer, or CheckNoBuffer where partial rollout is off. Changes
// nothing.
absl::Status CheckCarriedGroups(const v1::Config& config,
                                const TrainOptions& train,
                                const RunInputs& inputs,
                                const std::string& checkpoint,
                                int64_t step);

// How such a run chooses its checkpoint: its carried groups and its adapters (CheckResumedAdapters)
// must fit the run. The result refers to the arguments.
ResumeOptions MakeResumeOptions(const v1::Config& config,
                                const TrainOptions& train,
                                const RunInputs& inputs,
                                std::string launch_id = "");

// Null where partial rollout is off, or for a weight check. The buffer is empty until the train
// loop loads it; warnings about the journal are added to `resume`. Errors as RolloutBuffer::Open
// and RoundJournal::Open.
absl::StatusOr<std::unique_ptr<RoundRunner>> OpenRoundRunner(const v1::Config& config,
                                                             const TrainOptions& train,
                                                             const RunInputs& inputs,
                                                             ResumePoint& resume);

// The gRPC clients of a run's workers, with the deadlines and the TLS files of cluster.*.
ClientFactory GrpcClients(const v1::Config& config);

}  // namespace tandem
