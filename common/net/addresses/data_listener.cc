#include "common/net/addresses/data_listener.h"

#include <utility>

#include "common/base/local_address.h"
#include "common/base/log.h"
#include "common/base/status.h"
#include "common/net/security/tls_credentials.h"
#include "common/tcp/tcp_address.h"

namespace tandem {
namespace {

absl::StatusOr<std::string> HostToListenOn(const DataListenOptions& options) {
  if (options.server.starts_with("unix:")) {
    return options.security.enabled() ? "0.0.0.0" : "127.0.0.1";
  }
  TANDEM_ASSIGN_OR_RETURN(const TcpAddress server, ParseTcpAddress(options.server));
  return server.host;
}

absl::StatusOr<std::unique_ptr<TcpListener>> ListenInRange(const std::string& host,
                                                           const DataListenOptions& options) {
  for (int port = options.first_port; port <= options.last_port; ++port) {
    auto listener = TcpListener::Listen(JoinAddress(host, port), options.security);
    // Of any free port this is the address's fault.
    const bool is_taken = absl::IsFailedPrecondition(listener.status()) && port != 0;
    if (!is_taken) return listener;
  }
  return MakeStatus(absl::StatusCode::kResourceExhausted,
                    "no port of {} to {} on {} is free for data of other hosts: widen "
                    "cluster.port_range, or leave it out for any port",
                    options.first_port, options.last_port, host);
}

}  // namespace

absl::StatusOr<TcpSecurity> DataSecurity(const RpcSecurity& security,
                                         std::vector<std::string> peer_roles,
                                         bool data_tls) {
  if (!security.enabled()) return TcpSecurity{};
  if (!data_tls) {
    LogWarn(
        "cluster.data_tls=false: data goes to other workers in clear text, for whoever can read or "
        "change what is on the network");
    return TcpSecurity{};
  }
  TANDEM_ASSIGN_OR_RETURN(std::string project, ServedProject(security));
  return TcpSecurity{.cert = security.cert,
                     .key = security.key,
                     .ca = security.ca,
                     .project = std::move(project),
                     .peer_roles = std::move(peer_roles)};
}

absl::StatusOr<DataListener> ListenForData(const DataListenOptions& options) {
  TANDEM_ASSIGN_OR_RETURN(const std::string host, HostToListenOn(options));
  if (!options.security.enabled() && !options.clear_text && !IsLocalAddress(JoinAddress(host, 0))) {
    return InvalidArgument(
        "data of other hosts would come to {} without TLS: give --tls-cert, --tls-key and --tls-ca",
        host);
  }
  DataListener data;
  TANDEM_ASSIGN_OR_RETURN(data.listener, ListenInRange(host, options));
  TANDEM_ASSIGN_OR_RETURN(data.address, AnnouncedAddress(JoinAddress(host, data.listener->port()),
                                                         options.network, options.controller));
  return data;
}

}  // namespace tandem
