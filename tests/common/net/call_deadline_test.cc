#include "common/net/call_deadline.h"

#include <absl/time/clock.h>
#include <catch2/catch.hpp>
#include <grpcpp/channel.h>

#include "common/net/call_tracker.h"
#include "common/net/channel.h"
#include "common/net/server.h"
#include "tandem/v1/reward.grpc.pb.h"
#include "tests/support/patience.h"
#include "tests/support/temp_dir.h"

namespace tandem {
namespace {

// Answers only calls without items; others wait until their client has gone.
class SilentReward : public v1::RewardService::Service {
 public:
  grpc::Status Score(grpc::ServerContext* context,
                     const v1::ScoreRequest* request,
                     v1::ScoreResponse*) override {
    while (request->items_size() > 0 && !context->IsCancelled()) {
      absl::SleepFor(absl::Milliseconds(1));
    }
    return grpc::Status::OK;
  }
};

struct SilentPeer {
  testing::TempDir dir;
  SilentReward service;
  std::string address = "unix:" + (dir.path() / "peer.sock").string();
  std::unique_ptr<RpcServer> server = RpcServer::Start(address, {&service}, {}).value();
  std::unique_ptr<v1::RewardService::Stub> stub =
      v1::RewardService::NewStub(MakeChannel(address).value());

  absl::Status Call(CallTracker* calls, absl::Duration limit, int items) {
    v1::ScoreRequest request;
    for (int i = 0; i < items; ++i) request.add_items();
    v1::ScoreResponse response;
    return calls->Run(limit, [&](grpc::ClientContext* context) {
      context->set_wait_for_ready(true);
      return stub->Score(context, request, &response);
    });
  }
};

TEST_CASE("A call whose peer stays silent ends with DeadlineExceeded and says after how long",
          "[rpc]") {
  SilentPeer peer;
  CallTracker calls;
  const absl::Status status = peer.Call(&calls, absl::Milliseconds(50), 1);
  REQUIRE(absl::IsDeadlineExceeded(status));
  REQUIRE(std::string(status.message()) == "no answer within 50ms");
}

TEST_CASE("A limit that is far away does not touch a call that is answered", "[rpc]") {
  SilentPeer peer;
  CallTracker calls;
  REQUIRE(peer.Call(&calls, testing::kPatience, 0).ok());
  REQUIRE(absl::IsDeadlineExceeded(peer.Call(&calls, absl::Milliseconds(50), 1)));
  REQUIRE(peer.Call(&calls, testing::kPatience, 0).ok());
}

TEST_CASE("A call that somebody else cancels stays Cancelled", "[rpc]") {
  SilentPeer peer;
  grpc::ClientContext context;
  const CallDeadline deadline(context, testing::kPatience);
  context.TryCancel();
  v1::ScoreRequest request;
  request.add_items();
  v1::ScoreResponse response;
  const grpc::Status status = deadline.Explain(peer.stub->Score(&context, request, &response));
  REQUIRE(status.error_code() == grpc::StatusCode::CANCELLED);
}

}  // namespace
}  // namespace tandem
