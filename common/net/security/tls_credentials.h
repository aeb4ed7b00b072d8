// Credentials for mutual TLS whose files may be replaced while they are in use.
#pragma once

#include <memory>
#include <string>

#include <absl/status/statusor.h>
#include <absl/time/time.h>

#include "common/base/clock.h"
#include "common/net/security/rpc_security.h"

namespace grpc {
class ChannelCredentials;
class ServerCredentials;
}  // namespace grpc

namespace tandem {

// How often the files are re-read. New connections use the new files; open connections are kept.
// Between replacing the certificate and replacing its key, new connections may fail; callers retry.
inline constexpr absl::Duration kTlsRefresh = absl::Seconds(1);

// How long mismatched files are re-read before they are rejected: a process that starts during a
// replacement may find a certificate whose key is not there yet.
inline constexpr absl::Duration kTlsReplacement = absl::Seconds(5);

// Checks the files as their first use in a process does, so that a program can refuse them before
// it starts anything. OK without TLS. Errors as of MakeTlsServerCredentials; each names the key of
// the configuration, the file, and where to read what it must hold.
absl::Status CheckTlsFiles(const RpcSecurity& security, Clock& clock = RealClock());

// The project whose callers a server with these files answers: the one that its own certificate
// names; "" without TLS. Errors as of MakeTlsServerCredentials.
absl::StatusOr<std::string> ServedProject(const RpcSecurity& security);

// Callers show a certificate that `security.ca` signed, and make the calls of their role
// (common/net/security/call_roles.h) in the ServedProject.
// The first use of the files in a process checks them, for kTlsReplacement. InvalidArgument: one
// holds no PEM certificate or key, the key is not the certificate's, or a certificate is not valid
// now; this process's own certificate names no project, or several. NotFound, at once: a file
// cannot be read.
absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> MakeTlsServerCredentials(
    const RpcSecurity& security, Clock& clock = RealClock());

// Errors as of MakeTlsServerCredentials, but a certificate without project is none.
absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> MakeTlsChannelCredentials(
    const RpcSecurity& security, Clock& clock = RealClock());

}  // namespace tandem
