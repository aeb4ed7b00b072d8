// Command line and exit code of the two worker programs.
#pragma once

#include <string>

#include <absl/status/status.h>

#include "common/base/build_info.h"
#include "common/net/addresses/announced_address.h"
#include "common/net/channel.h"

namespace CLI {
class App;
}

namespace tandem {

struct WorkerFlags {
  BuildInfo build;         // of the program: set by its main
  std::string controller;  // the controller's address
  int rank = 0;
  std::string device;  // cpu:<rank> unless given
  std::string listen;  // WorkerListenAddress unless given
  std::string node;    // empty: as ThisHost finds it
  NetworkFlags network;
  RpcSecurity security;  // for calls to and from other processes; token_file: as said below
  double join_timeout_seconds = 120;
};

// The file of the run's token: `given` unless empty, else that in the folder of the controller's
// Unix socket, else "".
std::string WorkerTokenFile(const std::string& given, const std::string& controller);

// Adds --node, --advertise, --interface, --token-file and the TLS files, which say how a process of
// a host is found and whom it trusts. The arguments must live until `app` has parsed.
void AddNetworkFlags(CLI::App& app,
                     std::string* node,
                     NetworkFlags* network,
                     RpcSecurity* security);

// InvalidArgument: calls to `address` or at it would need the run's token, and there is no file of
// it.
absl::Status CheckTokenFile(const std::string& address, const RpcSecurity& security);

// Parses the command line of the worker `role` ("trainer" or "rollout"), described as `about`.
// Returns kExitDone if the program should run, -1 after --help or --version, and kExitRefused after
// it printed an error to stderr.
int ParseWorkerFlags(
    const std::string& role, const std::string& about, int argc, char** argv, WorkerFlags* flags);

// How a worker exits after `end`: docs/reference/errors.md.
int WorkerExitCode(const absl::Status& end);

}  // namespace tandem
