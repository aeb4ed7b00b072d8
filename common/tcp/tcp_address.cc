#include "common/tcp/tcp_address.h"

#include <cstring>
#include <memory>

#include <absl/strings/numbers.h>
#include <netdb.h>

#include "common/base/status.h"

namespace tandem {

absl::StatusOr<TcpAddress> ParseTcpAddress(const std::string& text) {
  const size_t colon = text.rfind(':');
  TcpAddress address;
  const bool has_port = colon != std::string::npos && colon > 0 &&
                        absl::SimpleAtoi(text.substr(colon + 1), &address.port) &&
                        address.port >= 0 && address.port <= 65535;
  address.host = has_port ? text.substr(0, colon) : "";
  const bool bracketed =
      address.host.size() > 2 && address.host.front() == '[' && address.host.back() == ']';
  if (bracketed) address.host = address.host.substr(1, address.host.size() - 2);
  if (!has_port || (!bracketed && address.host.find_first_of(":[]") != std::string::npos)) {
    return InvalidArgument("\"{}\" is not an address: HOST:PORT, or [HOST]:PORT for IPv6", text);
  }
  return address;
}

absl::StatusOr<std::vector<ResolvedAddress>> ResolveTcpAddress(const std::string& text) {
  TANDEM_ASSIGN_OR_RETURN(const TcpAddress address, ParseTcpAddress(text));
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int error =
      getaddrinfo(address.host.c_str(), std::to_string(address.port).c_str(), &hints, &found);
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owned(found, &freeaddrinfo);
  if (error != 0) {
    return MakeStatus(absl::StatusCode::kUnavailable, "the host of {} is not known: {}", text,
                      gai_strerror(error));
  }
  std::vector<ResolvedAddress> resolved;
  for (const addrinfo* one = found; one != nullptr; one = one->ai_next) {
    ResolvedAddress& added = resolved.emplace_back();
    std::memcpy(&added.storage, one->ai_addr, one->ai_addrlen);
    added.bytes = one->ai_addrlen;
  }
  return resolved;
}

std::string PeerAddress(int socket) {
  ResolvedAddress peer;
  peer.bytes = sizeof(peer.storage);
  char host[NI_MAXHOST], port[NI_MAXSERV];
  if (getpeername(socket, reinterpret_cast<sockaddr*>(&peer.storage), &peer.bytes) != 0 ||
      getnameinfo(peer.get(), peer.bytes, host, sizeof(host), port, sizeof(port),
                  NI_NUMERICHOST | NI_NUMERICSERV) != 0) {
    return "an unknown address";
  }
  const bool v6 = peer.storage.ss_family == AF_INET6;
  return fmt::format("{}{}{}:{}", v6 ? "[" : "", host, v6 ? "]" : "", port);
}

}  // namespace tandem
