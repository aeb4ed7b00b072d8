// Ports for processes that a test starts.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

namespace tandem::testing {

// A port of `host`, a numeric loopback address, on which nobody listens, below the ephemeral range.
// Where the search begins depends on the process id, so that tests that run side by side rarely try
// the same one.
inline int FreePort(const std::string& host) {
  static int port = 20'000 + static_cast<int>(getpid() % 9'000);
  for (const int last = port + 1'000; port < last;) {
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    inet_pton(AF_INET, host.c_str(), &address.sin_addr);
    address.sin_port = htons(static_cast<uint16_t>(++port));
    const bool is_free = bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0;
    close(fd);
    if (is_free) return port;
  }
  throw std::runtime_error("no free port of " + host);
}

}  // namespace tandem::testing
