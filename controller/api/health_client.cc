#include "controller/api/health_client.h"

#include <memory>
#include <utility>

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/support/byte_buffer.h>

#include "common/net/channel.h"
#include "common/net/grpc_status.h"

namespace tandem {
namespace {

// What must live until the answer is there.
struct Attempt {
  std::shared_ptr<grpc::Channel> channel;
  std::unique_ptr<grpc::GenericStub> stub;
  grpc::ClientContext context;
  grpc::ByteBuffer request, response;
  std::function<void(absl::Status)> done;
};

}  // namespace

void DialBack(const std::string& address,
              const RpcSecurity& security,
              absl::Duration timeout,
              std::function<void(absl::Status)> done) {
  absl::StatusOr<std::shared_ptr<grpc::Channel>> channel = MakeChannel(address, security);
  if (!channel.ok()) return done(channel.status());
  const auto attempt = std::make_shared<Attempt>();
  attempt->channel = *std::move(channel);
  attempt->stub = std::make_unique<grpc::GenericStub>(attempt->channel);
  attempt->done = std::move(done);
  SetDeadline(attempt->context, timeout);
  // HealthCheckRequest's only field, the name of a service, is empty: the server as a whole.
  const grpc::Slice empty;
  attempt->request = grpc::ByteBuffer(&empty, 1);
  attempt->stub->UnaryCall(
      &attempt->context, "/grpc.health.v1.Health/Check", {}, &attempt->request, &attempt->response,
      [attempt](const grpc::Status& status) { attempt->done(FromGrpcStatus(status)); });
}

}  // namespace tandem
