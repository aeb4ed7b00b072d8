// gRPC channels and credentials. Unix sockets are open to their user alone, loopback ports to who
// has the run's token, all other addresses need mutual TLS.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/time/time.h>

#include "common/net/security/rpc_security.h"

namespace grpc {
class Channel;
class ChannelCredentials;
class ClientContext;
class ServerCredentials;
}  // namespace grpc

namespace tandem {

class CallObserver;

// Whether calls to `address` carry the run's token: TCP on loopback without TLS.
bool NeedsRunToken(const std::string& address, const RpcSecurity& security);

// InvalidArgument: `address` is reachable from other hosts and mutual TLS is missing or incomplete;
// a server would listen on loopback with neither token nor TLS; or a server with a token would
// listen on a loopback address other than 127.0.0.1 and [::1]; NotFound: a PEM file cannot be read;
// for TLS otherwise as MakeTlsServerCredentials.
absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> MakeServerCredentials(
    const std::string& address, const RpcSecurity& security);
absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> MakeChannelCredentials(
    const std::string& address, const RpcSecurity& security);

// When a peer counts as gone while calls wait for it, without a word from its machine: nothing came
// from it for `silence`, and then no answer to a question of gRPC's for `answer`. Its calls end as
// Unavailable. A stopped process does not answer either.
struct PeerWatch {
  absl::Duration silence = absl::Seconds(20);
  absl::Duration answer = absl::Seconds(40);
};

// Connects lazily; reconnects within a second of the peer's return. Messages up to 4 MiB.
// `observer` is told of every call. `watch`: nullopt watches a peer that may be on another host, as
// PeerWatch is by default, and no other one, which has no network to vanish in. InvalidArgument: an
// address of another host without mutual TLS.
absl::StatusOr<std::shared_ptr<grpc::Channel>> MakeChannel(
    const std::string& address,
    const RpcSecurity& security = {},
    std::shared_ptr<CallObserver> observer = nullptr,
    std::optional<PeerWatch> watch = std::nullopt);

// How often a peer may ask whether this process is there, at most.
inline constexpr absl::Duration kLeastPeerSilence = absl::Seconds(5);

// Once per process, before gRPC is used. Sends gRPC's own log lines to the debug log; errors arrive
// in the status of a call anyway. Keeps gRPC initialized until the process ends: otherwise it shuts
// down with the last server or channel, and that can block for ten seconds after the peer has
// refused a large write.
// Turns off Abseil's search for deadlocks among the mutexes of gRPC, which took an eighth of
// what a heartbeat costs the controller.
void PrepareGrpc();

// Sets the deadline of a call to `timeout` from now.
void SetDeadline(grpc::ClientContext& context, absl::Duration timeout);

// Whether a process listens at host:port, with any protocol; false for other kinds of addresses.
// Blocks while the name is resolved and a connection is tried.
bool AcceptsConnections(const std::string& address);

}  // namespace tandem
