// A run from its configuration to its end: what main.cc starts.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include "common/base/build_info.h"
#include "common/process/directory_lock.h"
#include "common/process/exit_code.h"
#include "common/types/host_id.h"
#include "controller/run/run_control.h"
#include "tandem/v1/config.pb.h"

namespace tandem {

class SignsOfLife;

struct AssemblyOptions {
  v1::Config config;  // resolved and validated
  StartMode start = StartMode::kTrain;
  std::string launch_id;  // see ResumeOptions
  BuildInfo build;        // of the program
  HostId host;            // of this process
  bool log_json = false;  // stdout gets JSON lines for programs instead of text for people
  const SignsOfLife* signs = nullptr;  // outlives the Assembly; null: nobody hears that it listens
};

// Lifecycle: Create (loads and checks all inputs; no server runs yet) -> Run -> destructor.
class Assembly {
 public:
  // Locks the run directory and, for training, the directory of checkpoints, for the life of the
  // object, and puts together what the configuration asks for: a training run
  // (MakeTrainAssembly), or with weight_sync.check_only a weight check (MakeCheckAssembly). Every
  // error concerns the model, the data or the run directory: FailedAt::kInputs.
  static absl::StatusOr<std::unique_ptr<Assembly>> Create(const AssemblyOptions& options);
  virtual ~Assembly() = default;

  // Serves and works until the run ends, then stops the workers. Blocks.
  virtual absl::Status Run() = 0;
  // Valid after Run: the stage in which it failed. kInputs: a model or checkpoint could not be
  // loaded.
  virtual FailedAt failed_at() const = 0;
  // Valid after Run: whether a training run has made all its steps.
  virtual bool completed() const { return false; }
  // Ends the run soon; a training run saves a checkpoint of the finished steps first. May be called
  // by any thread, and before Run.
  virtual void StopNow() = 0;

 private:
  std::vector<DirectoryLock> locks_;
};

}  // namespace tandem
