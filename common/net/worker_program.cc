#include "common/net/worker_program.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>

#include <CLI/CLI.hpp>
#include <absl/strings/numbers.h>
#include <fmt/format.h>

#include "common/base/status.h"
#include "common/net/protocol.h"
#include "common/process/files/run_token.h"
#include "common/tcp/identity.h"

namespace tandem {
namespace {

// Empty, or what is wrong with a --device.
std::string IsDevice(const std::string& device) {
  const size_t colon = device.find(':');
  const std::string kind = device.substr(0, colon);
  int number = -1;
  const bool readable = colon != std::string::npos && (kind == "cpu" || kind == "cuda") &&
                        absl::SimpleAtoi(device.substr(colon + 1), &number) && number >= 0;
  return readable ? "" : device + " is neither cpu:<number> nor cuda:<number>";
}

// Empty, or what is wrong with a --node.
std::string NodeProblem(const std::string& node) {
  return IsNodeName(node) ? ""
                          : "\"" + node +
                                "\" is no name of 1 to 253 letters, digits, dots, hyphens "
                                "and underscores";
}

// Empty, or what is wrong with an --advertise. The port is that of the server.
std::string HostProblem(const std::string& host) {
  const bool has_port = std::count(host.begin(), host.end(), ':') == 1;
  if (host.empty() || has_port || host.find_first_of("[]/ ") != std::string::npos) {
    return "\"" + host + "\" is not a host's name or address without brackets and port";
  }
  const std::string any_port = JoinAddress(host, 0);
  return IsWildcard(any_port) ? host + " is no address that others reach" : "";
}

}  // namespace

std::string WorkerTokenFile(const std::string& given, const std::string& controller) {
  if (!given.empty()) return std::filesystem::absolute(given).lexically_normal().string();
  const std::string directory = UnixSocketDirectory(controller);
  return directory.empty() ? "" : RunTokenPath(directory);
}

void AddNetworkFlags(CLI::App& app,
                     std::string* node,
                     NetworkFlags* network,
                     RpcSecurity* security) {
  app.add_option("--node", *node,
                 "name of this host: workers of equal names (and kernels) share memory; default: "
                 "SLURMD_NODENAME, else the host's name")
      ->check(NodeProblem);
  app.add_option("--advertise", network->advertise,
                 "name or address, without port, by which other hosts reach this one, for "
                 "certificates and where it has several; default: that of --listen or --interface, "
                 "else that from which it reaches the controller")
      ->check(HostProblem);
  app.add_option("--interface", network->interface,
                 "network interface, such as eth0, whose address is announced where --listen is "
                 "0.0.0.0");
  app.add_option("--tls-cert", security->cert, "PEM certificate of this host, for mutual TLS");
  app.add_option("--tls-key", security->key, "PEM private key of the certificate");
  app.add_option("--tls-ca", security->ca, "PEM authority that signed the peers' certificates");
  app.add_option("--token-file", security->token_file,
                 "the run's token, RUN_DIR/token of the controller: for ports of 127.0.0.1 without "
                 "TLS; default: in the folder of the controller's socket");
}

absl::Status CheckTokenFile(const std::string& address, const RpcSecurity& security) {
  if (!security.token_file.empty() || !NeedsRunToken(address, security)) return absl::OkStatus();
  return InvalidArgument(
      "{} is a port that every user of this host can reach: give --token-file with the file "
      "RUN_DIR/token of the controller, or --tls-cert, --tls-key and --tls-ca",
      address);
}

int ParseWorkerFlags(
    const std::string& role, const std::string& about, int argc, char** argv, WorkerFlags* flags) {
  CLI::App app(about);
  app.set_version_flag("--version", BuildText(flags->build, "tandem-" + role));
  std::string given_role = role;
  app.add_option("--controller", flags->controller, "address of the controller")->required();
  app.add_option("--role", given_role, "must be " + role)->check(CLI::IsMember({role}));
  app.add_option("--rank", flags->rank, "rank, among the workers of its role")
      ->required()
      ->check(CLI::Range(0, kMaxRank));
  app.add_option(
         "--device", flags->device,
         "cpu:<number> or cuda:<number>; the same for a trainer and a rollout that share it "
         "(cluster.hybrid_engine); default: cpu:<rank>")
      ->check(IsDevice);
  app.add_option(
      "--listen", flags->listen,
      "unix:/path or host:port; 0.0.0.0:0 is any port of all interfaces; default: in the "
      "folder of the controller's socket, else 127.0.0.1:0, or 0.0.0.0:0 where the "
      "controller is not on 127.0.0.1");
  app.add_option("--join-timeout", flags->join_timeout_seconds,
                 "seconds to wait for the controller")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  AddNetworkFlags(app, &flags->node, &flags->network, &flags->security);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? -1 : kExitRefused;
  }
  if (flags->device.empty()) flags->device = fmt::format("cpu:{}", flags->rank);
  flags->listen = WorkerListenAddress(role, flags->rank, flags->listen, flags->controller);
  RpcSecurity& security = flags->security;
  security.token_file = WorkerTokenFile(security.token_file, flags->controller);
  for (const std::string& address : {flags->controller, flags->listen}) {
    const absl::Status has_token = CheckTokenFile(address, security);
    if (has_token.ok()) continue;
    fmt::print(stderr, "{}\n", std::string(has_token.message()));
    return kExitRefused;
  }
  return kExitDone;
}

int WorkerExitCode(const absl::Status& end) {
  if (IsDeviceLost(end)) return kExitRestart;
  switch (end.code()) {
    case absl::StatusCode::kOk:
    case absl::StatusCode::kAborted:  // another process took this rank
      return kExitDone;
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kDeadlineExceeded:
      return kExitPeerLost;
    case absl::StatusCode::kInternal:
      return kExitInternal;
    default:
      return kExitRefused;
  }
}

}  // namespace tandem
