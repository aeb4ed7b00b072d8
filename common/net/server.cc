#include "common/net/server.h"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#include <absl/time/clock.h>
#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/grpcpp.h>
#include <netdb.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/base/status.h"
#include "common/net/channel.h"
#include "common/process/files/private_files.h"
#include "common/process/local_socket.h"

namespace tandem {
namespace {

// Messages stay below 4 MiB; a registration carries the config as well.
constexpr int kMaxMessageBytes = 8 << 20;

// How long the kernel may take to release the memory and sockets of a killed predecessor.
constexpr absl::Duration kLeaveTime = absl::Seconds(2);

// Makes the folder of a socket: a worker may start before the controller makes the run directory.
absl::Status MakeParentFolder(const std::string& path) {
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  return folder.empty() ? absl::OkStatus() : MakeSocketFolder(folder);
}

// Removes the socket file that a dead process left. AlreadyExists: a process still listens on it.
absl::Status ClearSocket(const std::string& path) {
  TANDEM_ASSIGN_OR_RETURN(bool dead, NobodyListens(path));
  struct stat info {};
  if (lstat(path.c_str(), &info) != 0) return absl::OkStatus();
  if (!S_ISSOCK(info.st_mode)) {
    return MakeStatus(absl::StatusCode::kAlreadyExists, "{} exists and is not a socket", path);
  }
  const Instant deadline = RealClock().Now() + kLeaveTime;
  while (!dead && RealClock().Now() < deadline) {
    absl::SleepFor(absl::Milliseconds(50));
    if (lstat(path.c_str(), &info) != 0) return absl::OkStatus();  // its owner has ended in order
    TANDEM_ASSIGN_OR_RETURN(dead, NobodyListens(path));
  }
  if (!dead) {
    return MakeStatus(absl::StatusCode::kAlreadyExists,
                      "{} is in use: another process is listening there", path);
  }
  unlink(path.c_str());
  return absl::OkStatus();
}

int TryBind(int family, const sockaddr* name, socklen_t size) {
  const int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return errno;
  const int on = 1;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  const int error = bind(fd, name, size) == 0 ? 0 : errno;
  close(fd);
  return error;
}

// The errno of binding to `address`, which gRPC does not report; 0 if binding succeeds by now.
int FindBindError(const std::string& address) {
  if (address.rfind("unix:", 0) == 0) {
    sockaddr_un name{};
    name.sun_family = AF_UNIX;
    address.copy(name.sun_path, sizeof(name.sun_path) - 1, 5);
    const int error = TryBind(AF_UNIX, reinterpret_cast<sockaddr*>(&name), sizeof(name));
    if (error == 0) unlink(name.sun_path);
    return error;
  }
  const size_t colon = address.rfind(':');
  std::string host = address.substr(0, colon);
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  addrinfo hints{}, *found = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  if (getaddrinfo(host.c_str(), address.c_str() + colon + 1, &hints, &found) != 0) {
    return EADDRNOTAVAIL;
  }
  const int error = TryBind(found->ai_family, found->ai_addr, found->ai_addrlen);
  freeaddrinfo(found);
  return error;
}

absl::Status CannotListen(const std::string& address) {
  const int error = FindBindError(address);
  if (error == EADDRNOTAVAIL) {
    return InvalidArgument("cannot listen on {}: it is not an address of this host; correct it",
                           address);
  }
  if (error == 0 || error == EADDRINUSE) {
    return MakeStatus(
        absl::StatusCode::kAlreadyExists,
        "cannot listen on {}: the address is in use; choose another, or port 0 for any "
        "free one",
        address);
  }
  return MakeStatus(IoErrorCode(error), "cannot listen on {}: {}; choose another address or folder",
                    address, std::strerror(error));
}

std::string WithPort(const std::string& address, int port) {
  return address.substr(0, address.rfind(':') + 1) + std::to_string(port);
}

// gRPC makes socket files as the umask says, which belongs to the whole process. Files that other
// threads make meanwhile are closed to other users as well.
std::unique_ptr<grpc::Server> BuildPrivately(grpc::ServerBuilder& builder) {
  static Mutex umask_mutex;
  const MutexLock lock(umask_mutex);
  const mode_t before = umask(0077);
  std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  umask(before);
  return server;
}

}  // namespace

absl::StatusOr<std::unique_ptr<RpcServer>> RpcServer::Start(
    const std::string& address,
    const std::vector<grpc::Service*>& services,
    const RpcSecurity& security) {
  const bool is_unix = address.rfind("unix:", 0) == 0;
  if (address.find(':') == std::string::npos) {
    return InvalidArgument("address {} is neither unix:/path nor host:port", address);
  }
  TANDEM_ASSIGN_OR_RETURN(auto credentials, MakeServerCredentials(address, security));
  if (is_unix) {
    TANDEM_RETURN_IF_ERROR(MakeParentFolder(address.substr(5)));
    TANDEM_RETURN_IF_ERROR(ClearSocket(address.substr(5)));
  }

  PrepareGrpc();
  grpc::EnableDefaultHealthCheckService(true);
  static const bool reflection = (grpc::reflection::InitProtoReflectionServerBuilderPlugin(), true);
  (void)reflection;
  grpc::ServerBuilder builder;
  // Without this two processes could share one port, and clients would reach either.
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  // What channel.h asks; by default a server ends the connection of who asks so often.
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS,
                             static_cast<int>(absl::ToInt64Milliseconds(kLeastPeerSilence)));
  builder.SetMaxReceiveMessageSize(kMaxMessageBytes);
  int port = 0;
  builder.AddListeningPort(address, credentials, &port);
  for (grpc::Service* service : services) builder.RegisterService(service);

  std::unique_ptr<RpcServer> server(new RpcServer());
  server->server_ = BuildPrivately(builder);
  if (server->server_ == nullptr || (!is_unix && port == 0)) return CannotListen(address);
  server->address_ = is_unix ? address : WithPort(address, port);
  // An odd umask may have taken from the owner what clients need.
  if (is_unix) chmod(address.substr(5).c_str(), 0600);
  return server;
}

RpcServer::RpcServer() = default;
RpcServer::~RpcServer() { Shutdown(absl::Seconds(1)); }

void RpcServer::Shutdown(absl::Duration grace) {
  if (server_ == nullptr) return;
  server_->Shutdown(absl::ToChronoTime(absl::Now() + grace));
  server_->Wait();
  // gRPC removes its socket's file before it closes the socket. Now the file may be a successor's.
}

}  // namespace tandem
