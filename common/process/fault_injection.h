// Deliberate failures, so that tests of recovery can kill a process in a chosen phase.
//
// TANDEM_FAULT=<role>:<rank>:<point>:<nth>:<action>:<marker>[,<another>...]
//   role    controller, trainer or rollout, or that of a test's own program
//   rank    of the worker; 0 for the controller
//   point   name passed to FaultPoint: a phase, a request to an engine ("apply bucket"), "start" or
//           "end" of the process
//   nth     the fault fires when this process reaches the point for the nth time, 1 = the first
//   action  kill (SIGKILL), stop (SIGSTOP), exit (with code 1, at once), hang (this thread,
//           forever), wait (this thread, until a file MARKER.go exists: a test does something to
//           the run at exactly this point); from the nth time on: slow (half a second), flip
//           (FaultFlips)
//   marker  file created when the fault fires. If it exists already, the fault does not fire, so
//           that a restarted process survives. Tests wait for the file.
// Without the variable a fault point costs one comparison.
#pragma once

#include <string>

namespace tandem {

// Reads TANDEM_FAULT. Call once in main, before threads start. An invalid spec ends the
// process, so that no test passes because of a typo.
void InitFaultPoints(const std::string& role, int rank);

// Ends, stops or delays the process here if TANDEM_FAULT says so. Thread-safe.
void FaultPoint(const char* point);

// Whether TANDEM_FAULT asks the caller to flip a bit of the data at this point, to simulate corrupt
// memory or a wrong result (common/device/device_memory.h). Thread-safe.
bool FaultFlips(const char* point);

}  // namespace tandem
