// How every process of a job ends (sysexits.h). docs/reference/errors.md says what each asks of a
// user.
#pragma once

#include <absl/status/status.h>

namespace tandem {

enum ExitCode : int {
  kExitDone = 0,
  kExitDoesNotFit = 1,       // by the memory plan: tandemctl plan, --dry-run
  kExitRefused = 64,         // flags, config, or refused at registration: a restart does not help
  kExitDataError = 65,       // a model or data file is there, but cannot be what is needed
  kExitNoInput = 66,         // a file that the command line or the config names is not there
  kExitControllerLost = 69,  // a peer is gone for good
  kExitInternal = 70,
  kExitIoError = 74,  // a disk is full, a file may not be read or written, or a device fails
  kExitRestart = 75,  // temporary: start me again
};

// What a controller or launcher was at when it failed: the same status code means another thing.
enum class FailedAt {
  kConfig,  // flags and configuration
  kInputs,  // model, data, and what lies in the run directory
  kRun,
};

// The exit code of a controller or launcher that ends with `status`.
int ExitCodeAt(FailedAt stage, const absl::Status& status);

}  // namespace tandem
