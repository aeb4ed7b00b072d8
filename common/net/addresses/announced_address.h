// What a process tells others of where it listens: an address that they can reach.
#pragma once

#include <string>

#include <absl/status/statusor.h>

namespace tandem {

// What a user said of the network, as flags.
struct NetworkFlags {
  std::string advertise;  // a host's name or address, without port; empty: found
  std::string interface;  // of this host, such as "eth0"; empty: found
};

// "host:port", or "[host]:port" where the host has colons.
std::string JoinAddress(const std::string& host, int port);

// Whether it stands for all addresses of a host: 0.0.0.0 and [::], which others must never be told.
bool IsWildcard(const std::string& address);

// The address of this host that a packet to `address` ("host:port") would have as its sender.
// Nothing is sent. Resolves the name. InvalidArgument: it is not known, or there is no route.
absl::StatusOr<std::string> OwnHostTowards(const std::string& address);

// What others reach of a server that listens on `bound` ("0.0.0.0:4711"): with the port of `bound`,
// the host is flags.advertise; else that of `bound`, if it is one; else the address of
// flags.interface; else that from which this host reaches `controller`. "unix:/path" stays as it
// is. Resolves the controller's name. InvalidArgument: the interface has no address, there is no
// route, or the controller's address is a Unix socket's, which says nothing of a network.
absl::StatusOr<std::string> AnnouncedAddress(const std::string& bound,
                                             const NetworkFlags& flags,
                                             const std::string& controller);

}  // namespace tandem
