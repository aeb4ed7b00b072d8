#include "common/net/addresses/announced_address.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <optional>

#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "common/base/status.h"
#include "common/process/local_socket.h"

namespace tandem {
namespace {

// The digits of a socket address's host; nullopt: it is of neither IPv4 nor IPv6.
std::optional<std::string> HostOf(const sockaddr* address) {
  if (address == nullptr) return std::nullopt;
  const bool v6 = address->sa_family == AF_INET6;
  if (!v6 && address->sa_family != AF_INET) return std::nullopt;
  char host[NI_MAXHOST] = {};
  const socklen_t size = v6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
  if (getnameinfo(address, size, host, sizeof(host), nullptr, 0, NI_NUMERICHOST) != 0) {
    return std::nullopt;
  }
  return host;
}

// A link's own addresses ("fe80::1%eth0") need its name, which differs between hosts.
bool IsForOthers(const std::string& host) { return host.find('%') == std::string::npos; }

absl::StatusOr<std::string> HostOfInterface(const std::string& name) {
  ifaddrs* all = nullptr;
  if (getifaddrs(&all) != 0) {
    return Internal("cannot list the network interfaces: {}", std::strerror(errno));
  }
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> owner(all, freeifaddrs);
  std::string of_v6;
  for (const ifaddrs* at = all; at != nullptr; at = at->ifa_next) {
    if (name != at->ifa_name) continue;
    const std::optional<std::string> host = HostOf(at->ifa_addr);
    if (!host || !IsForOthers(*host)) continue;
    if (at->ifa_addr->sa_family == AF_INET) return *host;
    if (of_v6.empty()) of_v6 = *host;
  }
  if (!of_v6.empty()) return of_v6;
  return InvalidArgument(
      "--interface {}: this host has no such interface with an address (ip -brief address lists "
      "them); correct it, or give --advertise",
      name);
}

// The address that a packet to `controller` would have as its sender. Nothing is sent.
absl::StatusOr<std::string> HostOnRouteTo(const std::string& controller) {
  TANDEM_ASSIGN_OR_RETURN(const HostAndPort to, SplitAddress(controller));
  addrinfo hints{};
  hints.ai_socktype = SOCK_DGRAM;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(to.host.c_str(), to.port.c_str(), &hints, &found);
  if (error != 0) {
    return InvalidArgument("the controller's host {} is not known here: {}; correct --controller",
                           to.host, gai_strerror(error));
  }
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(found, freeaddrinfo);
  for (const addrinfo* at = found; at != nullptr; at = at->ai_next) {
    const UniqueFd fd(socket(at->ai_family, at->ai_socktype | SOCK_CLOEXEC, at->ai_protocol));
    sockaddr_storage own{};
    socklen_t size = sizeof(own);
    auto* const name = reinterpret_cast<sockaddr*>(&own);
    if (!fd.valid() || connect(fd.get(), at->ai_addr, at->ai_addrlen) != 0) continue;
    if (getsockname(fd.get(), name, &size) != 0) continue;
    if (const auto host = HostOf(name)) return *host;
  }
  return InvalidArgument(
      "this host has no route to the controller at {}: correct --controller, or say with "
      "--advertise or --interface by which address others reach this host",
      controller);
}

}  // namespace

absl::StatusOr<HostAndPort> SplitAddress(const std::string& address) {
  const size_t colon = address.rfind(':');
  if (colon == std::string::npos || colon == 0) {
    return InvalidArgument("address {} is not host:port", address);
  }
  HostAndPort parts{address.substr(0, colon), address.substr(colon + 1)};
  if (parts.host.starts_with('[') && parts.host.ends_with(']')) {
    parts.host = parts.host.substr(1, parts.host.size() - 2);
  }
  const bool number =
      !parts.port.empty() && std::all_of(parts.port.begin(), parts.port.end(),
                                         [](char c) { return c >= '0' && c <= '9'; });
  if (!number) return InvalidArgument("address {} is not host:port", address);
  return parts;
}

std::string JoinAddress(const std::string& host, const std::string& port) {
  return host.find(':') == std::string::npos ? host + ":" + port : "[" + host + "]:" + port;
}

bool IsWildcard(const std::string& address) {
  const absl::StatusOr<HostAndPort> parts = SplitAddress(address);
  return parts.ok() && (parts->host == "0.0.0.0" || parts->host == "::");
}

absl::StatusOr<std::string> AnnouncedAddress(const std::string& bound,
                                             const NetworkFlags& flags,
                                             const std::string& controller) {
  if (bound.starts_with("unix:")) return bound;
  TANDEM_ASSIGN_OR_RETURN(const HostAndPort parts, SplitAddress(bound));
  if (!flags.advertise.empty()) return JoinAddress(flags.advertise, parts.port);
  if (!IsWildcard(bound)) return bound;
  if (!flags.interface.empty()) {
    TANDEM_ASSIGN_OR_RETURN(const std::string host, HostOfInterface(flags.interface));
    return JoinAddress(host, parts.port);
  }
  if (controller.starts_with("unix:")) {
    return InvalidArgument(
        "{} is no address that others reach, and the controller's, {}, does not tell which of this "
        "host's is: give --advertise or --interface",
        bound, controller);
  }
  TANDEM_ASSIGN_OR_RETURN(const std::string host, HostOnRouteTo(controller));
  return JoinAddress(host, parts.port);
}

}  // namespace tandem
