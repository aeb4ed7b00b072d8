// Builds a run out of its configuration and carries it through: the only file beside main that
// knows every concrete type of the controller.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include "common/base/build_info.h"
#include "common/config/config.h"
#include "common/process/exit_code.h"
#include "controller/run/run_control.h"
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

}  // namespace tandem
