// Where the sockets of a run are: all beside the controller's.
#pragma once

#include <cstddef>
#include <string>

namespace tandem {

inline constexpr size_t kLongestSocketPath = 107;

// The directory of "unix:/path", "" for other addresses.
std::string UnixSocketDirectory(const std::string& address);

// Where the worker `role` `rank` listens: at `listen` if that is given; else at <role>-<rank>.sock
// beside the controller's Unix socket; where that has none, or the path is too long for a socket,
// at any free port of 127.0.0.1.
std::string WorkerListenAddress(const std::string& role,
                                int rank,
                                const std::string& listen,
                                const std::string& controller);

}  // namespace tandem
