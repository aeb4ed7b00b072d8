// How every process of a job ends (sysexits.h). docs/reference/errors.md says what each asks of a
// user.
#pragma once

#include <absl/status/status.h>

namespace tandem {

enum ExitCode : int {
  kExitDone = 0,
  kExitDoesNotFit = 1,  // the memory plan exceeds the device: tandemctl plan, --dry-run
  kExitRefused = 64,    // flags, config or registration refused: a restart does not help
  kExitDataError = 65,  // a model or data file cannot be used
  kExitNoInput = 66,    // a file that the command line or the config names does not exist
  kExitPeerLost = 69,   // a peer did not come back
  kExitInternal = 70,
  kExitIoError = 74,  // a disk is full, a file may not be read or written, or a device fails
  kExitRestart = 75,  // temporary failure: start the process again
};

// The stage at which a controller or launcher failed, which decides what a status code means.
enum class FailedAt {
  kConfig,  // flags and configuration
  kInputs,  // model, data and run directory
  kRun,
};

// The exit code of a controller or launcher that ends with `status`.
int ExitCodeAt(FailedAt stage, const absl::Status& status);

}  // namespace tandem
