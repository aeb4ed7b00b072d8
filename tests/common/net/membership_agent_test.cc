#include "common/net/membership_agent.h"

#include <future>
#include <mutex>

#include <catch2/catch.hpp>

#include "common/net/protocol.h"
#include "common/net/server.h"
#include "tandem/v1/controller.grpc.pb.h"
#include "tests/support/patience.h"
#include "tests/support/temp_dir.h"

namespace tandem {
namespace {

const BuildInfo kBuild = {.version = "1", .commit = "c", .sources = "s", .flags = "f"};

// Gives the answers that a test sets.
class FakeController : public v1::ClusterService::Service {
 public:
  grpc::Status Register(grpc::ServerContext*,
                        const v1::RegisterRequest* request,
                        v1::RegisterResponse* response) override {
    std::lock_guard lock(mutex_);
    requests.push_back(*request);
    response->set_incarnation(3);
    response->mutable_config()->mutable_cluster()->set_heartbeat_seconds(0.01);
    response->mutable_config()->mutable_cluster()->set_controller_lost_seconds(lost_seconds);
    return refuse;
  }
  grpc::Status Heartbeat(grpc::ServerContext*,
                         const v1::HeartbeatRequest* request,
                         v1::HeartbeatResponse* response) override {
    std::lock_guard lock(mutex_);
    beats.push_back(*request);
    response->set_stop(stop);
    if (forget) return forget = false, grpc::Status(grpc::StatusCode::NOT_FOUND, "who?");
    return heartbeat;
  }

  std::mutex mutex_;
  std::vector<v1::RegisterRequest> requests;
  std::vector<v1::HeartbeatRequest> beats;
  grpc::Status refuse, heartbeat;
  bool stop = false, forget = false;
  double lost_seconds = absl::ToDoubleSeconds(testing::kPatience);
};

struct Fixture {
  testing::TempDir dir;
  std::string address = "unix:" + (dir.path() / "c.sock").string();
  FakeController controller;
  std::unique_ptr<RpcServer> server = *RpcServer::Start(address, {&controller});

  absl::StatusOr<std::unique_ptr<MembershipAgent>> Join() {
    return MembershipAgent::Join({.controller_address = address,
                                  .role = v1::ROLE_TRAINER,
                                  .rank = 1,
                                  .device = "cpu:1",
                                  .listen_address = "unix:/w",
                                  .build = kBuild},
                                 testing::kPatience);
  }

  // What the heartbeats end with.
  absl::Status End(MembershipAgent& agent) {
    std::promise<absl::Status> end;
    agent.StartHeartbeats(
        [] { return WorkerHealth{.phase = "train", .version = 7, .last_action = "forward"}; },
        [&end](absl::Status status) { end.set_value(std::move(status)); });
    return end.get_future().get();
  }
};

}  // namespace

TEST_CASE("MembershipAgent registers, tells its numerics class and ends when asked", "[cluster]") {
  Fixture f;
  const auto agent = f.Join();
  REQUIRE(agent.ok());
  REQUIRE((*agent)->incarnation() == 3);
  REQUIRE((*agent)->worker_id().rank() == 1);
  const KernelChoices choices = {{"linear [8 x 8]", "own kernels"}};
  REQUIRE((*agent)->SetTokenizerAndNumerics("", {"avx2", "avx2", choices}).ok());
  REQUIRE(f.controller.requests.size() == 2);
  REQUIRE(f.controller.requests[0].protocol() == kProtocolVersion);
  REQUIRE(f.controller.requests[0].build() == BuildText(kBuild));
  REQUIRE(f.controller.requests[0].build_id() == BuildId(kBuild));
  REQUIRE(f.controller.requests[0].boot_id() == *ReadBootId());
  REQUIRE(f.controller.requests[0].incarnation() == 0);
  REQUIRE(f.controller.requests[1].numerics_class() == "avx2");
  REQUIRE(f.controller.requests[1].numerics_choices().at("linear [8 x 8]") == "own kernels");
  REQUIRE(f.controller.requests[1].incarnation() == 3);
  REQUIRE(f.controller.requests[0].boot_nonce() == f.controller.requests[1].boot_nonce());
  f.controller.stop = true;
  REQUIRE(f.End(**agent).ok());
  REQUIRE(f.controller.beats.front().phase() == "train");
  REQUIRE(f.controller.beats.front().version() == 7);
  REQUIRE(f.controller.beats.front().worker().incarnation() == 3);
}

TEST_CASE("MembershipAgent hands on why it was refused", "[cluster]") {
  Fixture f;
  f.controller.refuse = grpc::Status(grpc::StatusCode::INVALID_ARGUMENT, "rank 1 of 1");
  const auto agent = f.Join();
  REQUIRE(absl::IsInvalidArgument(agent.status()));
  REQUIRE(std::string(agent.status().message()) == "rank 1 of 1");
}

TEST_CASE("MembershipAgent ends when its rank was taken", "[cluster]") {
  Fixture f;
  const auto agent = f.Join();
  f.controller.heartbeat = grpc::Status(grpc::StatusCode::ABORTED, "replaced");
  REQUIRE(absl::IsAborted(f.End(**agent)));
}

TEST_CASE("MembershipAgent registers again with a controller that does not know it", "[cluster]") {
  Fixture f;
  const auto agent = f.Join();
  f.controller.forget = true;
  f.controller.stop = true;
  REQUIRE(f.End(**agent).ok());
  REQUIRE(f.controller.requests.size() == 2);
  REQUIRE(f.controller.requests[1].incarnation() == 3);
}

TEST_CASE("MembershipAgent ends when the controller is gone for too long", "[cluster]") {
  Fixture f;
  f.controller.lost_seconds = 0.2;
  const auto agent = f.Join();
  f.server->Shutdown(absl::ZeroDuration());
  const absl::Status end = f.End(**agent);
  REQUIRE(absl::IsUnavailable(end));
  REQUIRE(std::string(end.message()).find(f.address) != std::string::npos);
}

TEST_CASE("MembershipAgent says where it looked for a controller", "[cluster]") {
  const auto agent = MembershipAgent::Join(
      {.controller_address = "unix:/nonexistent/c.sock", .role = v1::ROLE_TRAINER},
      absl::Milliseconds(300));
  REQUIRE(absl::IsUnavailable(agent.status()));
  REQUIRE(std::string(agent.status().message()).find("unix:/nonexistent/c.sock") !=
          std::string::npos);
}

}  // namespace tandem
