// Drives a Supervisor with real processes, signals and time.
#pragma once

#include "deploy/launcher/process_table.h"
#include "deploy/launcher/supervisor.h"

namespace tandem {

// SIGCHLD, SIGINT, SIGTERM and SIGHUP are blocked in this thread and read by RunUntilDone. Call it
// first thing in main, before any thread and any child.
void BlockSignals();

// Starts everything and supervises it until nothing runs. Returns the exit code: 0 where the
// controller ended well, 128 + signal where a signal stopped us, else the code of the failure.
// Messages go to stderr.
int RunUntilDone(const SupervisorOptions& options, ProcessTable* table);

}  // namespace tandem
