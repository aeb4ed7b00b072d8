// Addresses as text: "host:port", or "[::1]:7" for IPv6.
#pragma once

#include <string>
#include <vector>

#include <absl/status/statusor.h>
#include <sys/socket.h>

#include "common/base/clock.h"

namespace tandem {

struct TcpAddress {
  std::string host;  // without brackets
  int port = 0;
};

// InvalidArgument: `text` is not an address.
absl::StatusOr<TcpAddress> ParseTcpAddress(const std::string& text);

// As the system's socket calls take it.
struct ResolvedAddress {
  sockaddr_storage storage = {};
  socklen_t bytes = 0;

  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
};

// What `text` stands for, at least one. May ask the name service, which takes its own time.
// InvalidArgument; Unavailable: the host's name is not known.
absl::StatusOr<std::vector<ResolvedAddress>> ResolveTcpAddress(const std::string& text);

// The other end of a connected socket, for messages.
std::string PeerAddress(int socket);

}  // namespace tandem
