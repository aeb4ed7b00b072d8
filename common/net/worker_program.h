// What the two worker programs have in common at their edges: command line and exit code.
#pragma once

#include <string>

#include <absl/status/status.h>

#include "common/base/build_info.h"
#include "common/net/channel.h"

namespace tandem {

struct WorkerFlags {
  BuildInfo build;         // of the program: set by its main
  std::string controller;  // its address
  int rank = 0;
  std::string device;    // cpu:<rank> unless given
  std::string listen;    // where none was given: WorkerListenAddress
  RpcSecurity security;  // for the controller, the partner, and whoever calls this worker
  double join_timeout_seconds = 120;
};

// Parses the command line of the worker `role` ("trainer" or "rollout"), described as `about`.
// Returns kExitDone to go on; -1 after --help or --version; kExitRefused, said on stderr,
// otherwise.
int ParseWorkerFlags(
    const std::string& role, const std::string& about, int argc, char** argv, WorkerFlags* flags);

// How a worker exits after `end`: docs/reference/errors.md.
int ExitCodeOf(const absl::Status& end);

}  // namespace tandem
