// Runs a Supervisor on real processes, signals and time.
#pragma once

#include "deploy/launcher/notify_socket.h"
#include "deploy/launcher/process_table.h"
#include "deploy/launcher/supervisor.h"

namespace tandem {

// A launcher reads SIGUSR1 too, by which Slurm says that the time of a job is over soon. An agent
// leaves it ignored.
enum class SignalReader { kLauncher, kAgent };

// SIGCHLD, SIGINT, SIGTERM, SIGHUP and a launcher's SIGUSR1 are blocked in this thread and read by
// WaitForSignal. Call it first thing in main, before any thread and any child.
void BlockSignals(SignalReader reader);

// The next of those signals, or 0 after `longest`.
int WaitForSignal(SignalReader reader, absl::Duration longest);

// Starts all processes and supervises them until the last has ended. Returns the launcher's exit
// code: 0 if the controller succeeded, 128 + signal if a signal stopped the launcher, else the code
// of the failure. The controller gives its signs of life over `notify`. Messages go to stderr.
int RunUntilDone(const SupervisorOptions& options, ProcessTable* table, NotifySocket* notify);

}  // namespace tandem
