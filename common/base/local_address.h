// Tells addresses of this host from those that other hosts can reach.
#pragma once

#include <string>

#include <arpa/inet.h>
#include <netinet/in.h>

namespace tandem {

// True for unix:/path, and for a port of 127.x.x.x, localhost or [::1].
inline bool IsLocalAddress(const std::string& address) {
  if (address.rfind("unix:", 0) == 0) return true;
  const size_t colon = address.rfind(':');
  if (colon == std::string::npos) return false;
  const std::string host = address.substr(0, colon);
  if (host == "localhost" || host == "[::1]") return true;
  // Parsed as a number, because a host may be named 127.example.org.
  in_addr ip{};
  return inet_pton(AF_INET, host.c_str(), &ip) == 1 && ntohl(ip.s_addr) >> 24 == 127;
}

}  // namespace tandem
