#include "common/net/membership/agent_client.h"

#include <future>
#include <string>
#include <utility>
#include <vector>

#include <absl/base/thread_annotations.h>
#include <catch2/catch.hpp>

#include "common/base/mutex.h"
#include "common/net/membership/agent_codec.h"
#include "common/net/server.h"
#include "tandem/v1/controller.grpc.pb.h"
#include "tests/fakes/fake_clock.h"
#include "tests/support/patience.h"
#include "tests/support/temp_dir.h"

namespace tandem {
namespace {

const WorkerKey kAgentsTrainer{WorkerRole::kTrainer, 1};

// Gives the answers that a test sets, one after the other, the last one again and again.
class FakeAgentService : public v1::AgentService::Service {
 public:
  grpc::Status Heartbeat(grpc::ServerContext*,
                         const v1::AgentHeartbeatRequest* request,
                         v1::AgentHeartbeatResponse* response) override {
    const MutexLock lock(calls_mutex_);
    beats_.push_back(*request);
    *response = ToProto(orders_);
    const grpc::Status status = answers_.front();
    if (answers_.size() > 1) answers_.erase(answers_.begin());
    return status;
  }
  void Answer(std::vector<grpc::Status> answers) {
    const MutexLock lock(calls_mutex_);
    answers_ = std::move(answers);
  }
  void Order(AgentOrders orders) {
    const MutexLock lock(calls_mutex_);
    orders_ = std::move(orders);
  }
  std::vector<v1::AgentHeartbeatRequest> beats() {
    const MutexLock lock(calls_mutex_);
    return beats_;
  }

 private:
  Mutex calls_mutex_;
  std::vector<grpc::Status> answers_ ABSL_GUARDED_BY(calls_mutex_) = {grpc::Status::OK};
  AgentOrders orders_ ABSL_GUARDED_BY(calls_mutex_);
  std::vector<v1::AgentHeartbeatRequest> beats_ ABSL_GUARDED_BY(calls_mutex_);
};

AgentNews NewsOfB() {
  return {.protocol = 2,
          .host = {.boot_id = "boot", .node = "b"},
          .host_index = 1,
          .hosts = 2,
          .boot_nonce = "nonce",
          .processes =
              {{.key = kAgentsTrainer, .pid = 71, .starts = 2, .ended_pid = 70, .exit_signal = 9}},
          .failure = AgentFailure{.key = kAgentsTrainer, .code = 64, .reason = "why", .log = "l"}};
}

struct ClientFixture {
  testing::TempDir dir;
  std::string address = "unix:" + (dir.path() / "c.sock").string();
  FakeAgentService service;
  std::unique_ptr<RpcServer> server = *RpcServer::Start(address, {&service}, {});

  std::unique_ptr<AgentClient> Connect(Clock& clock = RealClock()) {
    return AgentClient::Connect({.controller_address = address, .clock = &clock}).value();
  }
};

// What the beats end with.
absl::Status EndOf(AgentClient& client, const AgentLimits& limits) {
  std::promise<absl::Status> end;
  client.Start(limits, {.news = NewsOfB,
                        .on_orders = [](const AgentOrders&) {},
                        .on_end = [&end](const absl::Status& status) { end.set_value(status); }});
  return end.get_future().get();
}

constexpr AgentLimits kQuick{.heartbeat = absl::Milliseconds(10)};

}  // namespace

TEST_CASE("What agents and controllers tell each other survives the wire", "[agents]") {
  const AgentNews news = NewsOfB();
  const AgentNews same = FromProto(ToProto(news)).value();
  REQUIRE(same.host == news.host);
  REQUIRE(same.host_index == 1);
  REQUIRE(same.hosts == 2);
  REQUIRE(same.boot_nonce == "nonce");
  REQUIRE(same.processes == news.processes);
  REQUIRE(same.failure == news.failure);
  REQUIRE_FALSE(same.leaving);
  const AgentOrders orders{.processes = {{kAgentsTrainer, "cuda:0"}},
                           .kill = {{kAgentsTrainer, 71}},
                           .run_dir = "/r",
                           .limits = {.heartbeat = absl::Milliseconds(250), .max_restarts = 5}};
  const AgentOrders equal = FromProto(ToProto(orders)).value();
  REQUIRE(equal.processes == orders.processes);
  REQUIRE(equal.kill == orders.kill);
  REQUIRE(equal.run_dir == "/r");
  REQUIRE(equal.limits.heartbeat == absl::Milliseconds(250));
  REQUIRE(equal.limits.max_restarts == 5);
  v1::AgentHeartbeatRequest nameless = ToProto(news);
  nameless.set_node("two words");
  REQUIRE(absl::IsInvalidArgument(FromProto(nameless).status()));
  v1::AgentHeartbeatRequest roleless = ToProto(news);
  roleless.mutable_processes(0)->set_role(v1::ROLE_UNSPECIFIED);
  REQUIRE(absl::IsInvalidArgument(FromProto(roleless).status()));
}

TEST_CASE("AgentClient joins, beats with its news, and tells what it is answered", "[agents]") {
  ClientFixture f;
  f.service.Order({.run_dir = "/r"});
  const auto client = f.Connect();
  const auto joined = client->Join(NewsOfB(), testing::kPatience);
  REQUIRE(joined.ok());
  REQUIRE(joined->run_dir == "/r");
  f.service.Order({.over = true});
  std::promise<void> over;
  bool told = false;
  client->Start(kQuick, {.news = NewsOfB,
                         .on_orders =
                             [&](const AgentOrders& orders) {
                               if (orders.over && !std::exchange(told, true)) over.set_value();
                             },
                         .on_end = [](const absl::Status&) {}});
  over.get_future().get();
  client->Leave(NewsOfB());
  const auto beats = f.service.beats();
  REQUIRE(beats.size() >= 3);
  REQUIRE(beats[1].processes(0).pid() == 71);
  REQUIRE_FALSE(beats[1].leaving());
  REQUIRE(beats.back().leaving());
}

TEST_CASE("AgentClient beats at once when it is told to", "[agents]") {
  ClientFixture f;
  const auto client = f.Connect();
  std::promise<void> answered;
  client->Start({.heartbeat = testing::kPatience},
                {.news = NewsOfB,
                 .on_orders = [&](const AgentOrders&) { answered.set_value(); },
                 .on_end = [](const absl::Status&) {}});
  client->BeatNow();
  answered.get_future().get();
}

TEST_CASE("AgentClient waits while another agent has its place, and ends when its own is taken",
          "[agents]") {
  ClientFixture f;
  const grpc::Status taken(grpc::StatusCode::ALREADY_EXISTS, "taken");
  f.service.Answer({taken, grpc::Status::OK});
  const auto client = f.Connect();
  REQUIRE(client->Join(NewsOfB(), testing::kPatience).ok());
  REQUIRE(f.service.beats().size() == 2);
  f.service.Answer({taken});
  REQUIRE(absl::IsAlreadyExists(EndOf(*client, kQuick)));
}

TEST_CASE("AgentClient passes on why it is refused, and waits for no other answer", "[agents]") {
  ClientFixture f;
  f.service.Answer({{grpc::StatusCode::FAILED_PRECONDITION, "another build"}});
  const auto client = f.Connect();
  REQUIRE(absl::IsFailedPrecondition(client->Join(NewsOfB(), testing::kPatience).status()));
  REQUIRE(f.service.beats().size() == 1);
  REQUIRE(absl::IsFailedPrecondition(EndOf(*client, kQuick)));
}

TEST_CASE("AgentClient reads the token again when a controller that was restarted refuses the old",
          "[agents]") {
  ClientFixture f;
  const grpc::Status stale(grpc::StatusCode::UNAUTHENTICATED, "token");
  f.service.Answer({stale, grpc::Status::OK, stale, grpc::Status::OK, stale, stale});
  const auto client = f.Connect();
  REQUIRE(client->Join(NewsOfB(), testing::kPatience).ok());
  REQUIRE(absl::IsUnauthenticated(EndOf(*client, kQuick)));
  REQUIRE(f.service.beats().size() == 6);
}

TEST_CASE("AgentClient gives a controller up after controller_lost, and not before", "[agents]") {
  ClientFixture f;
  const grpc::Status silent(grpc::StatusCode::UNAVAILABLE, "gone");
  f.service.Answer({silent});
  testing::FakeClock clock;
  const auto client = f.Connect(clock);
  std::promise<absl::Status> end;
  auto ended = end.get_future();
  client->Start({.heartbeat = absl::Milliseconds(10), .controller_lost = absl::Seconds(180)},
                {.news = NewsOfB,
                 .on_orders = [](const AgentOrders&) {},
                 .on_end = [&end](const absl::Status& status) { end.set_value(status); }});
  testing::WaitUntil("a beat, after which the clock counts",
                     [&] { return !f.service.beats().empty(); });
  clock.Advance(absl::Seconds(180));
  const size_t before = f.service.beats().size();
  testing::WaitUntil("two more beats", [&] { return f.service.beats().size() > before + 1; });
  REQUIRE(ended.wait_for(std::chrono::seconds(0)) == std::future_status::timeout);
  clock.Advance(absl::Seconds(1));
  const absl::Status lost = ended.get();
  REQUIRE(absl::IsUnavailable(lost));
  REQUIRE(std::string(lost.message()).find("cluster.controller_lost_seconds") != std::string::npos);
}

TEST_CASE("AgentClient says that there is no controller", "[agents]") {
  ClientFixture f;
  f.server.reset();
  const absl::Status none = f.Connect()->Join(NewsOfB(), absl::ZeroDuration()).status();
  REQUIRE(absl::IsUnavailable(none));
  REQUIRE(std::string(none.message()).find("no controller at unix:") != std::string::npos);
}

}  // namespace tandem
