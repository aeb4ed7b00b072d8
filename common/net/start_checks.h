// What a run needs of its host, looked at before any of its processes is started.
#pragma once

#include <string>

#include <absl/status/status.h>

#include "common/base/clock.h"
#include "common/net/security/rpc_security.h"

namespace tandem {

// Where a run keeps its files and its controller listens.
struct StartPlace {
  std::string run_dir;   // cluster.run_dir
  std::string listen;    // cluster.listen
  RpcSecurity security;  // the files of cluster.tls
};

// Called by the launcher before it starts the controller, by the controller before it reads its
// inputs, and by a dry run. Changes nothing. Every error names the key, and says what to do.
// PermissionDenied: the run directory is shared with other users, or they could replace the socket
// (CheckPrivateFolder, CheckSocketFolder). NotFound: the folder of a socket outside of the run
// directory does not exist; it is not made, as nothing would remove it again. InvalidArgument: as
// CheckTlsFiles, which waits on `clock` for files that are being replaced.
absl::Status CheckStartPlace(const StartPlace& place, Clock& clock = RealClock());

}  // namespace tandem
