// What the ends of a TCP connection ask of each other.
#pragma once

#include <string>
#include <vector>

namespace tandem {

// PEM files for TLS 1.3 in which both ends show a certificate; all empty means plain TCP.
struct TcpSecurity {
  std::string cert;  // this process's certificate chain
  std::string key;   // its private key
  std::string ca;    // the authority that signed the peers
  // What a peer's certificate must name: this project, and one of these roles (common/tcp/
  // identity.h).
  std::string project;
  std::vector<std::string> peer_roles;

  bool enabled() const { return !cert.empty() || !key.empty() || !ca.empty(); }
};

}  // namespace tandem
