#include "controller/api/health_client.h"

#include <memory>
#include <utility>
#include <vector>

#include <absl/base/thread_annotations.h>
#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/support/byte_buffer.h>

#include "common/base/mutex.h"
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

// Takes an attempt that has ended, and destroys the earlier ones if `sweep`. The last channel of a
// process waits at its end for the threads that run callbacks, so it must not end on one of these.
void Retire(std::unique_ptr<Attempt> ended, bool sweep) {
  struct Retired {
    Mutex attempts_mutex;
    std::vector<std::unique_ptr<Attempt>> attempts ABSL_GUARDED_BY(attempts_mutex);
  };
  static auto* const retired = new Retired;  // callbacks may come until the process has ended
  std::vector<std::unique_ptr<Attempt>> earlier;
  const MutexLock lock(retired->attempts_mutex);
  if (sweep) earlier.swap(retired->attempts);
  if (ended != nullptr) retired->attempts.push_back(std::move(ended));
}

}  // namespace

void DialBack(const std::string& address,
              const RpcSecurity& security,
              absl::Duration timeout,
              std::function<void(absl::Status)> done) {
  absl::StatusOr<std::shared_ptr<grpc::Channel>> channel = MakeChannel(address, security);
  if (!channel.ok()) return done(channel.status());
  Retire(nullptr, true);
  auto* const attempt = new Attempt;  // the callback's, which comes in any case
  attempt->channel = *std::move(channel);
  attempt->stub = std::make_unique<grpc::GenericStub>(attempt->channel);
  attempt->done = std::move(done);
  SetDeadline(attempt->context, timeout);
  // HealthCheckRequest's only field, the name of a service, is empty: the server as a whole.
  const grpc::Slice empty;
  attempt->request = grpc::ByteBuffer(&empty, 1);
  attempt->stub->UnaryCall(&attempt->context, "/grpc.health.v1.Health/Check", {}, &attempt->request,
                           &attempt->response, [attempt](const grpc::Status& status) {
                             attempt->done(FromGrpcStatus(status));
                             Retire(std::unique_ptr<Attempt>(attempt), false);
                           });
}

}  // namespace tandem
