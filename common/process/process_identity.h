// Names this host, and tells whether a process of it still lives.
#pragma once

#include <cstdint>
#include <string>

namespace tandem {

// What tells process `pid` from every other one that has, had or will have its number: this
// process's pid namespace, in which the number counts, and the moment of its start, in ticks since
// the boot. "": no process of that number is seen from here, or it has ended and only its parent
// has not noticed. Equal answers at two times, or of two processes: it is the same process.
std::string ProcessStart(int64_t pid);

// Whether two answers are of one pid namespace, so that a process of the one is seen from the
// other. False for "".
bool SamePidNamespace(const std::string& process_start, const std::string& other);

// ProcessStart of this process. Unlike ProcessStart(getpid()) it is right where /proc is that of
// another pid namespace.
std::string OwnProcessStart();

// For messages and names of files; "localhost" where the host has no name.
std::string HostName();

}  // namespace tandem
