// Builds a run out of its configuration and carries it through: the only file beside main that
// knows every concrete type of the controller.
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

// Lifecycle: Create (all inputs are loaded and checked, nothing listens yet) -> Run -> destructor.
class Assembly {
 public:
  // Every error here is one of model, data or run directory: FailedAt::kInputs.
  static absl::StatusOr<std::unique_ptr<Assembly>> Create(const AssemblyOptions& options);
  virtual ~Assembly() = default;

  // Serves and trains until the run is over; then stops the workers. Blocks.
  virtual absl::Status Run() = 0;
  // After Run: where it failed. kInputs: a model or checkpoint could not be loaded.
  virtual FailedAt failed_at() const = 0;
  // From any thread, and before Run. Ends the run soon, with a checkpoint of what is finished.
  virtual void StopNow() = 0;
};

// What a run with partial rollout carries from step to step.

// Whether such a run can go on with the groups that `checkpoint` carries, after `step` finished
// steps: ReadFittingBuffer, or CheckNoBuffer where partial rollout is off. Changes nothing.
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

// Null where partial rollout is off, or a run only checks. The buffer is empty until the train loop
// loads it; warnings about the journal go to `resume`. Errors as RolloutBuffer::Open and
// RoundJournal::Open.
absl::StatusOr<std::unique_ptr<RoundRunner>> OpenRoundRunner(const v1::Config& config,
                                                             const TrainOptions& train,
                                                             const RunInputs& inputs,
                                                             ResumePoint& resume);

// The clients of a run's workers, over gRPC.

// With the deadlines and the TLS of cluster.*.
ClientFactory GrpcClients(const v1::Config& config);

}  // namespace tandem
