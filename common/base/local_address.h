// Tells addresses of this host from those that other hosts can reach.
#pragma once

#include <string>

#include <arpa/inet.h>
#include <netinet/in.h>

namespace tandem {

// Hosts are parsed as numbers, because one may be named 127.example.org, and an address has several
// spellings: [::1] is [0:0:0:0:0:0:0:1], and [::ffff:127.0.0.1] is 127.0.0.1 for a socket of IPv6.
inline bool IsLoopback(const in6_addr& ip) {
  return IN6_IS_ADDR_LOOPBACK(&ip) || (IN6_IS_ADDR_V4MAPPED(&ip) && ip.s6_addr[12] == 127);
}

// True for unix:/path, and for a port of 127.x.x.x, localhost or [::1].
inline bool IsLocalAddress(const std::string& address) {
  if (address.rfind("unix:", 0) == 0) return true;
  const size_t colon = address.rfind(':');
  if (colon == std::string::npos) return false;
  const std::string host = address.substr(0, colon);
  if (host == "localhost") return true;
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') {
    in6_addr ip{};
    const std::string inside = host.substr(1, host.size() - 2);
    return inet_pton(AF_INET6, inside.c_str(), &ip) == 1 && IsLoopback(ip);
  }
  in_addr ip{};
  return inet_pton(AF_INET, host.c_str(), &ip) == 1 && ntohl(ip.s_addr) >> 24 == 127;
}

}  // namespace tandem
