// AgentService over a real socket, beside the registry of workers.
#include "controller/api/agent_service.h"

#include <memory>
#include <string>
#include <vector>

#include <catch2/catch.hpp>
#include <grpcpp/channel.h>

#include "common/net/channel.h"
#include "common/net/grpc_status.h"
#include "common/net/membership/agent_codec.h"
#include "common/net/protocol.h"
#include "common/net/server.h"
#include "tests/fakes/fake_clock.h"
#include "tests/support/patience.h"
#include "tests/support/temp_dir.h"
#include "tests/support/text.h"

namespace tandem {

using testing::Says;

namespace {

const WorkerKey kFarTrainer{WorkerRole::kTrainer, 0};
const HostId kFarHost{.boot_id = "boot", .node = "b"};

struct AgentServiceFixture {
  testing::TempDir dir;
  testing::FakeClock clock;
  WorkerRegistry workers{{.host = {.boot_id = "boot", .node = "a"}}, clock};
  AgentRegistry agents{{.device = "cpu", .build_id = "id", .run_dir = "/r"}, clock};
  std::vector<absl::Status> ends;
  AgentService service{agents, workers,
                       [this](const absl::Status& reason) { ends.push_back(reason); }};
  std::string address = "unix:" + (dir.path() / "c.sock").string();
  std::unique_ptr<RpcServer> server = *RpcServer::Start(address, {&service}, {});
  std::unique_ptr<v1::AgentService::Stub> stub = v1::AgentService::NewStub(*MakeChannel(address));

  AgentNews news{.protocol = kProtocolVersion,
                 .build_id = "id",
                 .host = kFarHost,
                 .hosts = 1,
                 .boot_nonce = "nonce",
                 .pid = 7};

  absl::StatusOr<AgentOrders> Beat() {
    grpc::ClientContext context;
    SetDeadline(context, testing::kPatience);
    v1::AgentHeartbeatResponse response;
    const grpc::Status status = stub->Heartbeat(&context, ToProto(news), &response);
    if (!status.ok()) return FromGrpcStatus(status);
    return FromProto(response);
  }
  absl::StatusOr<int64_t> RegisterTrainer(int64_t pid) {
    return workers.Register({.protocol = kProtocolVersion,
                             .key = kFarTrainer,
                             .address = "127.0.0.1:1",
                             .host = kFarHost,
                             .device = "cpu:0",
                             .boot_nonce = std::to_string(pid),
                             .pid = pid,
                             .numerics_class = "avx2"});
  }
};

}  // namespace

TEST_CASE("AgentService says what shall run on a host", "[agents]") {
  AgentServiceFixture f;
  const auto orders = f.Beat();
  REQUIRE(orders.ok());
  REQUIRE(orders->run_dir == "/r");
  REQUIRE(orders->processes ==
          std::vector<AgentOrder>{{kFarTrainer, "cpu:0"}, {{WorkerRole::kRollout, 0}, "cpu:0"}});
  f.news.build_id = "other";
  REQUIRE(absl::IsFailedPrecondition(f.Beat().status()));
}

TEST_CASE("AgentService frees the rank of a worker whose process ended on another host",
          "[agents]") {
  AgentServiceFixture f;
  REQUIRE(f.RegisterTrainer(71).ok());
  REQUIRE(absl::IsAlreadyExists(f.RegisterTrainer(72).status()));
  f.news.processes = {{.key = kFarTrainer, .pid = 72, .starts = 2, .ended_pid = 70}};
  REQUIRE(f.Beat().ok());  // that is an older one
  REQUIRE(f.workers.ReadyIncarnation(kFarTrainer) == 1);
  f.news.processes[0].ended_pid = 71;
  f.news.host.node = "c";  // a process of another host has that number
  REQUIRE(f.Beat().ok());
  REQUIRE(f.workers.ReadyIncarnation(kFarTrainer) == 1);
  f.news.host = kFarHost;
  REQUIRE(f.Beat().ok());
  REQUIRE_FALSE(f.workers.ReadyIncarnation(kFarTrainer));
  REQUIRE(f.RegisterTrainer(72).value() == 2);
  REQUIRE(f.Beat().ok());  // it says so with each beat
  REQUIRE(f.workers.ReadyIncarnation(kFarTrainer) == 2);
}

TEST_CASE("AgentService ends the run for a worker that cannot be mended", "[agents]") {
  AgentServiceFixture f;
  f.news.failure = AgentFailure{.key = kFarTrainer, .code = 64, .reason = "trainer 0 cannot run"};
  REQUIRE(f.Beat().ok());
  REQUIRE(f.ends.size() == 1);
  REQUIRE(absl::IsInvalidArgument(f.ends[0]));
  REQUIRE(Says(f.ends[0], "trainer 0 on b"));
  f.agents.EndRun();
  REQUIRE(f.Beat()->over);
  REQUIRE(f.ends.size() == 1);
}

}  // namespace tandem
