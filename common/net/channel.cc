#include "common/net/channel.h"

#include <utility>

#include <absl/time/clock.h>
#include <grpc/support/log.h>
#include <grpcpp/grpcpp.h>

#include "common/base/log.h"
#include "common/base/status_macros.h"

namespace tandem {

void QuietGrpc() {
  static const bool once = [] {
    gpr_set_log_function([](gpr_log_func_args* line) {
      LogDebug("grpc {}:{} {}", line->file, line->line, line->message);
    });
    return true;
  }();
  (void)once;
}

absl::StatusOr<std::shared_ptr<grpc::Channel>> MakeChannel(const std::string& address,
                                                           const RpcSecurity& security) {
  QuietGrpc();
  if (address.find(':') == std::string::npos) {
    return InvalidArgument("address {} is neither host:port nor unix:/path", address);
  }
  TANDEM_ASSIGN_OR_RETURN(auto credentials, MakeChannelCredentials(address, security));
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
  // Also the least time that an attempt to connect gets: a peer on a loaded machine answers late.
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 5000);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 1000);
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  // Channels to one address would share one connection, and a stalled one would hold up the rest.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetMaxReceiveMessageSize(8 << 20);
  return grpc::CreateCustomChannel(address, credentials, arguments);
}

void SetDeadline(grpc::ClientContext& context, absl::Duration timeout) {
  context.set_deadline(absl::ToChronoTime(absl::Now() + timeout));
}

}  // namespace tandem
