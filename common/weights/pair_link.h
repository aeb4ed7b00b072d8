// The connection between the two processes of a pair while an update is open: who waits for what
// the other end's device has to do asks it whether there is anybody left to do it.
#pragma once

#include <absl/time/time.h>

#include "common/process/local_socket.h"

namespace tandem {

struct PairLink {
  UniqueFd connection;                         // invalid: both ends are one process
  absl::Duration timeout = absl::Seconds(60);  // for what is under way on the other end's device
  // True once the other process has closed its end or died.
  bool closed() const { return connection.valid() && PeerClosed(connection.get()); }
};

}  // namespace tandem
