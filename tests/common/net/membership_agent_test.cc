#include "common/net/membership/membership_agent.h"

#include <chrono>
#include <future>
#include <string>
#include <utility>
#include <vector>

#include <absl/base/thread_annotations.h>
#include <catch2/catch.hpp>

#include "common/base/mutex.h"
#include "common/base/progress.h"
#include "common/net/grpc_status.h"
#include "common/net/protocol.h"
#include "common/net/server.h"
#include "common/process/process_identity.h"
#include "tandem/v1/controller.grpc.pb.h"
#include "tests/fakes/fake_clock.h"
#include "tests/support/patience.h"
#include "tests/support/temp_dir.h"

namespace tandem {
namespace {

const BuildInfo kBuild = {.version = "1", .commit = "c", .sources = "s", .flags = "f"};

// What a test sets and gRPC's threads read.
struct Answers {
  grpc::Status registration, heartbeat;
  bool stop = false;
  bool forget = false;  // who sends the next heartbeat
  double lost_seconds = absl::ToDoubleSeconds(testing::kPatience);
};

// Gives the answers that a test sets.
class FakeController : public v1::ClusterService::Service {
 public:
  grpc::Status Register(grpc::ServerContext*,
                        const v1::RegisterRequest* request,
                        v1::RegisterResponse* response) override {
    const MutexLock lock(calls_mutex_);
    requests_.push_back(*request);
    response->set_incarnation(3);
    auto* cluster = response->mutable_config()->mutable_cluster();
    cluster->set_heartbeat_seconds(0.01);
    cluster->set_controller_lost_seconds(answers_.lost_seconds);
    return answers_.registration;
  }
  grpc::Status Heartbeat(grpc::ServerContext*,
                         const v1::HeartbeatRequest* request,
                         v1::HeartbeatResponse* response) override {
    const MutexLock lock(calls_mutex_);
    beats_.push_back(*request);
    response->set_stop(answers_.stop);
    if (std::exchange(answers_.forget, false)) return {grpc::StatusCode::NOT_FOUND, "who?"};
    return answers_.heartbeat;
  }

  void Answer(Answers answers) {
    const MutexLock lock(calls_mutex_);
    answers_ = std::move(answers);
  }
  std::vector<v1::RegisterRequest> requests() {
    const MutexLock lock(calls_mutex_);
    return requests_;
  }
  std::vector<v1::HeartbeatRequest> beats() {
    const MutexLock lock(calls_mutex_);
    return beats_;
  }

 private:
  Mutex calls_mutex_;
  Answers answers_ ABSL_GUARDED_BY(calls_mutex_);
  std::vector<v1::RegisterRequest> requests_ ABSL_GUARDED_BY(calls_mutex_);
  std::vector<v1::HeartbeatRequest> beats_ ABSL_GUARDED_BY(calls_mutex_);
};

struct Fixture {
  testing::TempDir dir;
  std::string address = "unix:" + (dir.path() / "c.sock").string();
  FakeController controller;
  std::unique_ptr<RpcServer> server = *RpcServer::Start(address, {&controller}, {});

  absl::StatusOr<std::unique_ptr<MembershipAgent>> Join(Clock& clock = RealClock()) {
    return MembershipAgent::Join({.controller_address = address,
                                  .role = v1::ROLE_TRAINER,
                                  .rank = 1,
                                  .device = "cpu:1",
                                  .listen_address = "unix:/w",
                                  .host = {.boot_id = "boot", .node = "a"},
                                  .build = kBuild,
                                  .clock = &clock},
                                 testing::kPatience);
  }

  // What the heartbeats end with.
  absl::Status End(MembershipAgent& agent) {
    std::promise<absl::Status> end;
    agent.StartHeartbeats(
        [] {
          return WorkerHealth{.phase = "train",
                              .version = 7,
                              .last_action = "forward",
                              .training = TrainingLoad{.layer = "layer 7"}};
        },
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
  (*agent)->SetDataAddress("127.0.0.1:9");
  REQUIRE((*agent)->SetTokenizerAndNumerics("", {"avx2", "avx2", choices}).ok());
  const std::vector<v1::RegisterRequest> requests = f.controller.requests();
  REQUIRE(requests.size() == 2);
  REQUIRE(requests[0].protocol() == kProtocolVersion);
  REQUIRE(requests[0].build() == BuildText(kBuild));
  REQUIRE(requests[0].build_id() == BuildId(kBuild));
  REQUIRE(requests[0].boot_id() == "boot");
  REQUIRE(requests[0].node() == "a");
  REQUIRE(requests[0].data_address() == "");
  REQUIRE(requests[1].data_address() == "127.0.0.1:9");
  REQUIRE(requests[0].incarnation() == 0);
  REQUIRE(requests[0].process_start() == ProcessStart(requests[0].pid()));
  REQUIRE(requests[1].numerics_class() == "avx2");
  REQUIRE(requests[1].numerics_choices().at("linear [8 x 8]") == "own kernels");
  REQUIRE(requests[1].incarnation() == 3);
  REQUIRE(requests[0].boot_nonce() == requests[1].boot_nonce());
  f.controller.Answer({.stop = true});
  REQUIRE(f.End(**agent).ok());
  const std::vector<v1::HeartbeatRequest> beats = f.controller.beats();
  REQUIRE(beats.front().phase() == "train");
  REQUIRE(beats.front().version() == 7);
  REQUIRE(beats.front().training().layer() == "layer 7");
  REQUIRE_FALSE(beats.front().has_generation());
  REQUIRE(beats.front().worker().incarnation() == 3);
}

TEST_CASE("MembershipAgent tells for how long the engine has stood still, and where", "[cluster]") {
  Fixture f;
  testing::FakeClock clock;
  const auto agent = f.Join(clock);
  REQUIRE(agent.ok());
  const WorkStep step("attention", {"layer", 7});
  (*agent)->StartHeartbeats([] { return WorkerHealth(); }, [](const absl::Status&) {});
  testing::WaitUntil("a heartbeat", [&] { return !f.controller.beats().empty(); });
  clock.Advance(absl::Seconds(42));
  testing::WaitUntil("a heartbeat that tells the time",
                     [&] { return f.controller.beats().back().progress().still_seconds() == 42; });
  const v1::EngineProgress told = f.controller.beats().back().progress();
  REQUIRE(told.activity() == "attention, layer 7");
  REQUIRE(told.moves() > 0);
  NoteProgress();
  testing::WaitUntil("a heartbeat that tells of a move",
                     [&] { return f.controller.beats().back().progress().still_seconds() == 0; });
  REQUIRE(f.controller.beats().back().progress().moves() > told.moves());
}

TEST_CASE("MembershipAgent hands on why it was refused", "[cluster]") {
  Fixture f;
  f.controller.Answer({.registration = {grpc::StatusCode::INVALID_ARGUMENT, "rank 1 of 1"}});
  const auto agent = f.Join();
  REQUIRE(absl::IsInvalidArgument(agent.status()));
  REQUIRE(std::string(agent.status().message()) == "rank 1 of 1");
}

TEST_CASE("MembershipAgent tries again while the controller does not reach it in time",
          "[cluster]") {
  Fixture f;
  f.controller.Answer({.registration = ToGrpcStatus(absl::DeadlineExceededError("no call back"))});
  auto joining = std::async(std::launch::async, [&f] { return f.Join(); });
  testing::WaitUntil("two registrations", [&] { return f.controller.requests().size() >= 2; });
  f.controller.Answer({});
  REQUIRE(joining.get().ok());
}

TEST_CASE("MembershipAgent that is never reached says so, and not that there is no controller",
          "[cluster]") {
  Fixture f;
  f.controller.Answer({.registration = ToGrpcStatus(absl::DeadlineExceededError("no call back"))});
  testing::FakeClock clock;
  auto joining = std::async(std::launch::async, [&] { return f.Join(clock); });
  testing::WaitUntil("a registration", [&] { return !f.controller.requests().empty(); });
  clock.Advance(testing::kPatience);
  const absl::Status late = joining.get().status();
  REQUIRE(absl::IsUnavailable(late));
  REQUIRE(std::string(late.message()).find("did not take this process in") != std::string::npos);
  REQUIRE(std::string(late.message()).find("no call back") != std::string::npos);
}

TEST_CASE("MembershipAgent that is not reached after a restart goes on trying", "[cluster]") {
  Fixture f;
  testing::FakeClock clock;
  f.controller.Answer({.lost_seconds = 60});
  const auto agent = f.Join(clock);
  REQUIRE(agent.ok());
  const grpc::Status unknown = {grpc::StatusCode::NOT_FOUND, "who?"};
  f.controller.Answer({.registration = ToGrpcStatus(absl::DeadlineExceededError("no call back")),
                       .heartbeat = unknown});
  std::promise<absl::Status> end;
  std::future<absl::Status> ended = end.get_future();
  (*agent)->StartHeartbeats([] { return WorkerHealth(); },
                            [&end](absl::Status status) { end.set_value(std::move(status)); });
  // Each answer is newer than the time that passes before the next one.
  for (size_t tries = 2; tries < 5; ++tries) {
    testing::WaitUntil("a registration",
                       [&] { return f.controller.requests().size() > 2 * tries; });
    clock.Advance(absl::Seconds(40));
  }
  REQUIRE(ended.wait_for(std::chrono::seconds(0)) == std::future_status::timeout);
  f.controller.Answer({.stop = true});
  REQUIRE(ended.get().ok());
}

TEST_CASE("MembershipAgent ends when its rank was taken", "[cluster]") {
  Fixture f;
  const auto agent = f.Join();
  f.controller.Answer({.heartbeat = {grpc::StatusCode::ABORTED, "replaced"}});
  REQUIRE(absl::IsAborted(f.End(**agent)));
}

TEST_CASE("MembershipAgent goes on when a heartbeat is answered with garbage", "[cluster]") {
  Fixture f;
  const auto agent = f.Join();
  f.controller.Answer({.heartbeat = {grpc::StatusCode::UNIMPLEMENTED, "unknown method"}});
  std::promise<absl::Status> end;
  (*agent)->StartHeartbeats([] { return WorkerHealth(); },
                            [&end](absl::Status status) { end.set_value(std::move(status)); });
  testing::WaitUntil("heartbeats", [&] { return f.controller.beats().size() > 2; });
  f.controller.Answer({.stop = true});
  REQUIRE(end.get_future().get().ok());
}

TEST_CASE("MembershipAgent registers again with a controller that does not know it", "[cluster]") {
  Fixture f;
  const auto agent = f.Join();
  f.controller.Answer({.stop = true, .forget = true});
  REQUIRE(f.End(**agent).ok());
  const std::vector<v1::RegisterRequest> requests = f.controller.requests();
  REQUIRE(requests.size() == 2);
  REQUIRE(requests[1].incarnation() == 3);
}

TEST_CASE("MembershipAgent ends when the controller is gone for too long", "[cluster]") {
  Fixture f;
  f.controller.Answer({.lost_seconds = 0.2});
  const auto agent = f.Join();
  f.server->Shutdown(absl::ZeroDuration());
  const absl::Status end = f.End(**agent);
  REQUIRE(absl::IsUnavailable(end));
  REQUIRE(std::string(end.message()).find(f.address) != std::string::npos);
}

TEST_CASE("No change of the machine's date makes MembershipAgent give its controller up",
          "[cluster]") {
  for (const absl::Duration change : {absl::Hours(1), -absl::Hours(1)}) {
    Fixture f;
    testing::FakeClock clock;
    f.controller.Answer({.lost_seconds = 60});
    const auto agent = f.Join(clock);
    REQUIRE(agent.ok());
    f.controller.Answer({.heartbeat = {grpc::StatusCode::UNAVAILABLE, "away"}});
    std::promise<absl::Status> end;
    std::future<absl::Status> ended = end.get_future();
    (*agent)->StartHeartbeats([] { return WorkerHealth(); },
                              [&end](absl::Status status) { end.set_value(std::move(status)); });
    const auto lives_on = [&] {
      const size_t until = f.controller.beats().size() + 3;
      while (f.controller.beats().size() < until) {
        if (ended.wait_for(std::chrono::milliseconds(1)) == std::future_status::ready) return false;
      }
      return true;
    };
    REQUIRE(lives_on());
    clock.SetDate(change);
    REQUIRE(lives_on());
    clock.Advance(absl::Seconds(61));
    REQUIRE(ended.get().code() == absl::StatusCode::kUnavailable);
  }
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
