#include "common/net/addresses/announced_address.h"

#include <cerrno>
#include <cstring>
#include <memory>
#include <optional>
#include <vector>

#include <arpa/inet.h>
#include <fmt/format.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "common/base/status.h"
#include "common/process/local_socket.h"
#include "common/tcp/tcp_address.h"

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

}  // namespace

std::string JoinAddress(const std::string& host, int port) {
  const bool v6 = host.find(':') != std::string::npos;
  return v6 ? fmt::format("[{}]:{}", host, port) : fmt::format("{}:{}", host, port);
}

bool IsWildcard(const std::string& address) {
  const absl::StatusOr<TcpAddress> parts = ParseTcpAddress(address);
  if (!parts.ok()) return false;
  in6_addr v6{};  // has several spellings
  return parts->host == "0.0.0.0" ||
         (inet_pton(AF_INET6, parts->host.c_str(), &v6) == 1 && IN6_IS_ADDR_UNSPECIFIED(&v6));
}

absl::StatusOr<std::string> OwnHostTowards(const std::string& address) {
  const absl::StatusOr<std::vector<ResolvedAddress>> found = ResolveTcpAddress(address);
  if (!found.ok()) {
    return InvalidArgument("{} is not known here: {}", address,
                           std::string(found.status().message()));
  }
  for (const ResolvedAddress& to : *found) {
    const UniqueFd fd(socket(to.get()->sa_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    sockaddr_storage own{};
    socklen_t size = sizeof(own);
    auto* const name = reinterpret_cast<sockaddr*>(&own);
    if (!fd.valid() || connect(fd.get(), to.get(), to.bytes) != 0) continue;
    if (getsockname(fd.get(), name, &size) != 0) continue;
    if (const auto host = HostOf(name)) return *host;
  }
  return InvalidArgument("{} cannot be reached: this host has no route to it", address);
}

absl::StatusOr<std::string> AnnouncedAddress(const std::string& bound,
                                             const NetworkFlags& flags,
                                             const std::string& controller) {
  if (bound.starts_with("unix:")) return bound;
  TANDEM_ASSIGN_OR_RETURN(const TcpAddress parts, ParseTcpAddress(bound));
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
  const absl::StatusOr<std::string> host = OwnHostTowards(controller);
  if (!host.ok()) {
    return InvalidArgument(
        "the controller's address {}; correct --controller, or say with --advertise or "
        "--interface by which address others reach this host",
        std::string(host.status().message()));
  }
  return JoinAddress(*host, parts.port);
}

}  // namespace tandem
