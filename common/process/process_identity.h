// Names this host, and tells whether a process of it still lives.
#pragma once

#include <cstdint>
#include <string>

namespace tandem {

// Identifies process `pid` even if its number is reused: the pid namespace of this process and the
// start time of `pid` in ticks since boot. Equal results mean the same process. "": no such process
// is visible here, or it is a zombie.
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
