// A launcher's loop.
#pragma once

#include "deploy/launcher/notify_socket.h"
#include "deploy/launcher/process_table.h"
#include "deploy/launcher/supervisor.h"

namespace tandem {

// Starts all processes and supervises them until the last has ended. Returns the launcher's exit
// code: 0 if the controller succeeded, 128 + signal if a signal stopped the launcher, else the code
// of the failure. The controller gives its signs of life over `notify`. Messages go to stderr.
// BlockSignals (process_loop.h) comes first.
int RunUntilDone(const SupervisorOptions& options, ProcessTable* table, NotifySocket* notify);

}  // namespace tandem
