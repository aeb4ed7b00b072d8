// Deliberate failures: tests of recovery need a process that dies exactly in some phase.
//
// TANDEM_FAULT=<role>:<rank>:<point>:<nth>:<action>:<marker>[,<another>...]
//   role    controller, trainer or rollout
//   rank    of the worker; 0 for the controller
//   point   name given to FaultPoint: a phase, or what an engine is asked to do ("apply bucket")
//   nth     the fault fires when this process reaches the point for the nth time, 1 = the first
//   action  kill (SIGKILL), stop (SIGSTOP) or flip (FaultFlips, from the nth time on)
//   marker  file made when the fault fires; where it exists already nothing happens, so that a
//           restarted process lives. Tests wait for it.
// Without the variable a fault point costs one comparison.
#pragma once

#include <string>

namespace tandem {

// Reads TANDEM_FAULT. Call once in main, before threads start. A spec that cannot be read ends the
// process: a test must not pass because of a typo.
void InitFaultPoints(const std::string& role, int rank);

// Dies or stops here if TANDEM_FAULT says so. Thread-safe.
void FaultPoint(const char* point);

// Whether TANDEM_FAULT wants a bit of what is at this point to flip: memory that changes by itself,
// a wrong result (common/device/device_memory.h). Thread-safe.
bool FaultFlips(const char* point);

}  // namespace tandem
