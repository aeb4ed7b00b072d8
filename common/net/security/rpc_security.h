// What a process shows its peers over gRPC, and what it asks of them.
#pragma once

#include <atomic>
#include <memory>
#include <string>

namespace tandem {

// PEM files for mutual TLS; all empty means none.
struct RpcSecurity {
  std::string cert;  // this host's certificate chain
  std::string key;   // its private key
  std::string ca;    // the authority that signed the peers
  // The run's token, which loopback ports without TLS send and ask for
  // (common/process/files/run_token.h). Empty: callers send nothing, and such a port is not opened.
  std::string token_file;
  // Of a rollout: the trainer that sends it weights, for the calls that are this one's alone
  // (common/net/security/call_roles.h). -1 until the rollout knows it, and null: none.
  std::shared_ptr<std::atomic<int>> publisher;
  // For tests: a loopback port without token and TLS is opened to every user of this host.
  bool open_to_this_host = false;

  bool enabled() const { return !cert.empty() || !key.empty() || !ca.empty(); }
};

}  // namespace tandem
