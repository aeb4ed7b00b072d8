#include "common/net/channel.h"

#include <utility>
#include <vector>

#include <absl/synchronization/mutex.h>
#include <absl/time/clock.h>
#include <grpc/grpc.h>
#include <grpc/support/log.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/security/auth_metadata_processor.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/support/client_interceptor.h>
#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/base/local_address.h"
#include "common/base/log.h"
#include "common/base/status.h"
#include "common/net/call_observer.h"
#include "common/net/security/tls_credentials.h"
#include "common/net/security/token_calls.h"

namespace tandem {

void PrepareGrpc() {
  static const bool once = [] {
    grpc_init();  // never undone
    // The Abseil of a distribution is built with its checks on: a graph of the order in which
    // gRPC's mutexes are taken, behind one lock, and the process aborted where the order varies.
    absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
    gpr_set_log_function([](gpr_log_func_args* line) {
      LogDebug("grpc {}:{} {}", line->file, line->line, line->message);
    });
    return true;
  }();
  (void)once;
}

bool NeedsRunToken(const std::string& address, const RpcSecurity& security) {
  return IsLocalAddress(address) && address.rfind("unix:", 0) != 0 && !security.enabled();
}

namespace {

using InterceptorFactories =
    std::vector<std::unique_ptr<grpc::experimental::ClientInterceptorFactoryInterface>>;

class ObservedCall final : public grpc::experimental::Interceptor {
 public:
  ObservedCall(CallObserver& observer, const std::string& path)
      : observer_(observer), method_(path.substr(path.rfind('/') + 1)) {}

  void Intercept(grpc::experimental::InterceptorBatchMethods* methods) override {
    using Point = grpc::experimental::InterceptionHookPoints;
    if (methods->QueryInterceptionHookPoint(Point::PRE_SEND_INITIAL_METADATA)) {
      observer_.OnCall(method_);
    }
    if (methods->QueryInterceptionHookPoint(Point::POST_RECV_STATUS)) {
      // gRPC's codes have the same numbers.
      observer_.OnAnswer(method_,
                         static_cast<absl::StatusCode>(methods->GetRecvStatus()->error_code()));
    }
    methods->Proceed();
  }

 private:
  CallObserver& observer_;  // of the factory, which the channel owns
  const std::string method_;
};

class ObservedCallFactory final : public grpc::experimental::ClientInterceptorFactoryInterface {
 public:
  explicit ObservedCallFactory(std::shared_ptr<CallObserver> observer)
      : observer_(std::move(observer)) {}

  grpc::experimental::Interceptor* CreateClientInterceptor(
      grpc::experimental::ClientRpcInfo* call) override {
    return new ObservedCall(*observer_, call->method());
  }

 private:
  const std::shared_ptr<CallObserver> observer_;
};

void WatchPeer(const PeerWatch& watch, grpc::ChannelArguments& arguments) {
  const auto set = [&](const char* name, absl::Duration time) {
    arguments.SetInt(name, static_cast<int>(absl::ToInt64Milliseconds(time)));
  };
  set(GRPC_ARG_KEEPALIVE_TIME_MS, watch.silence);
  set(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, watch.answer);
  // However long a call waits without a byte of its own.
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
}

}  // namespace

absl::StatusOr<std::shared_ptr<grpc::Channel>> MakeChannel(const std::string& address,
                                                           const RpcSecurity& security,
                                                           std::shared_ptr<CallObserver> observer,
                                                           std::optional<PeerWatch> watch) {
  PrepareGrpc();
  if (address.find(':') == std::string::npos) {
    return InvalidArgument("address {} is neither host:port nor unix:/path", address);
  }
  TANDEM_ASSIGN_OR_RETURN(auto credentials, MakeChannelCredentials(address, security));
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
  // Also the minimum time that an attempt to connect gets: a peer on a loaded machine answers late.
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 5000);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 1000);
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  // Channels to one address would share one connection, and a stalled one would hold up the rest.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetMaxReceiveMessageSize(8 << 20);
  if (!watch && !IsLocalAddress(address)) watch.emplace();
  if (watch) WatchPeer(*watch, arguments);
  InterceptorFactories interceptors;
  if (NeedsRunToken(address, security) && !security.token_file.empty()) {
    interceptors.push_back(MakeTokenSender(security.token_file));
  }
  if (observer != nullptr) {
    interceptors.push_back(std::make_unique<ObservedCallFactory>(std::move(observer)));
  }
  if (interceptors.empty()) return grpc::CreateCustomChannel(address, credentials, arguments);
  return grpc::experimental::CreateCustomChannelWithInterceptors(address, credentials, arguments,
                                                                 std::move(interceptors));
}

void SetDeadline(grpc::ClientContext& context, absl::Duration timeout) {
  context.set_deadline(absl::ToChronoTime(absl::Now() + timeout));
}

namespace {

absl::Status CheckComplete(const std::string& address, const RpcSecurity& security) {
  if (!security.cert.empty() && !security.key.empty() && !security.ca.empty()) {
    return absl::OkStatus();
  }
  return InvalidArgument(
      "{} needs mutual TLS, and a part of it is missing: set cluster.tls.cert, cluster.tls.key "
      "and cluster.tls.ca (workers and tandemctl: --tls-cert, --tls-key and --tls-ca), or use "
      "127.0.0.1 or a unix: address",
      address);
}

// gRPC asks no caller of "insecure" credentials for anything; on the wire these are the same.
absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> TokenCredentials(
    const std::string& address, const std::string& token_file) {
  if (token_file.empty()) {
    return InvalidArgument(
        "cannot listen on {} without the token of the run: every user of this host could call "
        "there; give --token-file RUN_DIR/token, or the three files of mutual TLS, or use a unix: "
        "address",
        address);
  }
  const std::string host = address.substr(0, address.rfind(':'));
  if (host != "127.0.0.1" && host != "localhost" && host != "[::1]") {
    return InvalidArgument(
        "cannot listen on {} without TLS: of the loopback addresses only 127.0.0.1 and [::1] can; "
        "use one of them or a unix: address, or set cluster.tls",
        address);
  }
  auto credentials = grpc::experimental::LocalServerCredentials(LOCAL_TCP);
  credentials->SetAuthMetadataProcessor(MakeTokenCheck(token_file));
  return credentials;
}

}  // namespace

absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> MakeServerCredentials(
    const std::string& address, const RpcSecurity& security) {
  if (NeedsRunToken(address, security) && !security.open_to_this_host) {
    return TokenCredentials(address, security.token_file);
  }
  if (IsLocalAddress(address) && (!security.enabled() || address.rfind("unix:", 0) == 0)) {
    return grpc::InsecureServerCredentials();
  }
  TANDEM_RETURN_IF_ERROR(CheckComplete(address, security));
  return MakeTlsServerCredentials(security);
}

absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> MakeChannelCredentials(
    const std::string& address, const RpcSecurity& security) {
  if (IsLocalAddress(address) && (!security.enabled() || address.rfind("unix:", 0) == 0)) {
    return grpc::InsecureChannelCredentials();
  }
  TANDEM_RETURN_IF_ERROR(CheckComplete(address, security));
  return MakeTlsChannelCredentials(security);
}

bool AcceptsConnections(const std::string& address) {
  const size_t colon = address.rfind(':');
  if (colon == std::string::npos || address.rfind("unix:", 0) == 0) return false;
  std::string host = address.substr(0, colon);
  if (host.size() > 2 && host.front() == '[') host = host.substr(1, host.size() - 2);
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (getaddrinfo(host.c_str(), address.c_str() + colon + 1, &hints, &found) != 0) return false;
  bool accepted = false;
  for (const addrinfo* at = found; at != nullptr && !accepted; at = at->ai_next) {
    const int fd = socket(at->ai_family, at->ai_socktype | SOCK_CLOEXEC, at->ai_protocol);
    if (fd < 0) continue;
    accepted = connect(fd, at->ai_addr, at->ai_addrlen) == 0;
    close(fd);
  }
  freeaddrinfo(found);
  return accepted;
}

}  // namespace tandem
