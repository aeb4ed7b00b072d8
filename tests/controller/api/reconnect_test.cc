// The calls of a pool over a connection that stays open and answers nothing.
#include <array>
#include <atomic>
#include <future>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>
#include <sys/poll.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/net/protocol.h"
#include "common/net/server.h"
#include "common/process/local_socket.h"
#include "common/process/threads.h"
#include "controller/workers/rollout_client.h"
#include "controller/workers/trainer_client.h"
#include "controller/workers/worker_pool.h"
#include "tandem/v1/rollout.grpc.pb.h"
#include "tandem/v1/trainer.grpc.pb.h"
#include "tests/fakes/answer_of.h"
#include "tests/fakes/fake_clock.h"
#include "tests/support/patience.h"
#include "tests/support/temp_dir.h"

namespace tandem {
namespace {

// Forwards connections to a socket. Those that are open when Swallow is called take everything from
// then on and answer nothing; those that come later are as good as before.
class SwallowingRelay {
 public:
  SwallowingRelay(const std::string& path, std::string target)
      : target_(std::move(target)),
        listener_(*ListenLocal(path)),
        thread_("relay", [this] { Forward(); }) {}
  ~SwallowingRelay() {
    ended_ = true;
    thread_.Join();
  }

  // Returns once no byte of an open connection is forwarded any more.
  void Swallow() {
    swallow_ = true;
    testing::WaitUntil("the relay", [this] { return !swallow_; });
  }
  // Bytes that were taken and not forwarded.
  int64_t swallowed() const { return swallowed_; }

 private:
  struct Connection {
    UniqueFd near, far;
    bool swallows = false;
  };

  void Forward() {
    while (!ended_) {
      if (swallow_) {
        for (Connection& connection : connections_) connection.swallows = true;
        swallow_ = false;
      }
      std::vector<pollfd> ready = {{.fd = listener_.get(), .events = POLLIN, .revents = 0}};
      for (const Connection& connection : connections_) {
        ready.push_back({.fd = connection.near.get(), .events = POLLIN, .revents = 0});
        ready.push_back({.fd = connection.far.get(), .events = POLLIN, .revents = 0});
      }
      if (poll(ready.data(), ready.size(), 10) <= 0) continue;
      for (size_t i = connections_.size(); i-- > 0;) {
        const bool near = ready[2 * i + 1].revents != 0, far = ready[2 * i + 2].revents != 0;
        if ((near || far) && !Move(connections_[i], near)) {
          connections_.erase(connections_.begin() + static_cast<std::ptrdiff_t>(i));
        }
      }
      if (ready[0].revents != 0) {
        connections_.push_back(
            {*AcceptLocal(listener_.get(), RealClock().Now() + testing::kPatience),
             *ConnectLocal(target_)});
      }
    }
  }

  // Whether the connection is still open.
  bool Move(const Connection& connection, bool from_near) {
    const int from = from_near ? connection.near.get() : connection.far.get();
    const int to = from_near ? connection.far.get() : connection.near.get();
    std::array<char, 4096> bytes{};
    const ssize_t count = read(from, bytes.data(), bytes.size());
    if (count <= 0) return false;
    if (connection.swallows) {
      swallowed_ += count;
      return true;
    }
    return SendMessage(to, bytes.data(), static_cast<size_t>(count)).ok();
  }

  const std::string target_;
  const UniqueFd listener_;
  std::vector<Connection> connections_;
  std::atomic<bool> ended_ = false, swallow_ = false;
  std::atomic<int64_t> swallowed_ = 0;
  NamedThread thread_;
};

class CountingRollout final : public v1::RolloutService::Service {
 public:
  grpc::Status VerifyWeights(grpc::ServerContext*,
                             const v1::VerifyWeightsRequest*,
                             v1::VerifyWeightsResponse*) override {
    ++calls;
    return grpc::Status::OK;
  }
  std::atomic<int> calls = 0;
};

class GenerationTrainer final : public v1::TrainerService::Service {
 public:
  grpc::Status Reset(grpc::ServerContext*,
                     const v1::TrainerResetRequest*,
                     v1::TrainerResetResponse*) override {
    return grpc::Status::OK;
  }
  grpc::Status OptimizerStep(grpc::ServerContext*,
                             const v1::OptimizerStepRequest* request,
                             v1::OptimizerStepResponse*) override {
    generation = request->generation();
    return grpc::Status::OK;
  }
  std::atomic<int64_t> generation = -1;  // of the last step
};

// A rollout and a trainer behind relays, and the pool that calls them.
struct RelayedWorkers {
  RelayedWorkers() {
    for (const WorkerRole role : {WorkerRole::kTrainer, WorkerRole::kRollout}) {
      (void)registry.Register({.protocol = kProtocolVersion,
                               .key = {role, 0},
                               .address = Address(RoleName(role) + "-relay"),
                               .host = {.boot_id = "host"},
                               .device = "cpu:0",
                               .boot_nonce = "1",
                               .numerics_class = "avx2"});
    }
  }
  std::string Path(const std::string& name) const { return dir.path() / name; }
  std::string Address(const std::string& name) const { return "unix:" + Path(name); }

  std::future<absl::Status> Verify() {
    auto ended = std::make_shared<std::promise<absl::Status>>();
    (*pool.rollout(0))->VerifyWeights(0, [ended](const absl::StatusOr<PhaseReport>& answer) {
      ended->set_value(answer.status());
    });
    return ended->get_future();
  }
  absl::Status Optimize() {
    const auto client = *pool.trainer(0);
    return testing::AnswerOf<OptimizerStepReply>([&](auto done) { client->OptimizerStep(1, done); })
        .status();
  }

  testing::TempDir dir;
  CountingRollout rollout;
  GenerationTrainer trainer;
  std::unique_ptr<RpcServer> rollout_server = *RpcServer::Start(Address("rollout"), {&rollout}, {});
  std::unique_ptr<RpcServer> trainer_server = *RpcServer::Start(Address("trainer"), {&trainer}, {});
  SwallowingRelay rollout_relay{Path("rollout-relay"), Path("rollout")};
  SwallowingRelay trainer_relay{Path("trainer-relay"), Path("trainer")};
  testing::FakeClock clock;
  WorkerRegistry registry{{.topology = {}}, clock};
  std::shared_ptr<TrainerGroup> group = std::make_shared<TrainerGroup>();
  WorkerPool pool{registry,
                  {.trainer =
                       [this](const WorkerEntry& entry) {
                         return MakeGrpcTrainerClient(entry.announcement.address, entry.incarnation,
                                                      testing::kPatience, {}, nullptr, group);
                       },
                   .rollout =
                       [](const WorkerEntry& entry) {
                         return MakeGrpcRolloutClient(entry.announcement.address, entry.incarnation,
                                                      testing::kPatience, {});
                       }},
                  {},
                  clock};
};

}  // namespace

TEST_CASE("After Reconnect a rollout answers though the old connection swallows all",
          "[services][reconnect]") {
  RelayedWorkers workers;
  REQUIRE(workers.Verify().get().ok());
  workers.rollout_relay.Swallow();
  std::future<absl::Status> unanswered = workers.Verify();
  testing::WaitUntil("the call", [&] { return workers.rollout_relay.swallowed() > 0; });
  REQUIRE(workers.rollout.calls == 1);
  const auto rollout = workers.pool.rollout(0);
  const WorkerKey key{WorkerRole::kRollout, 0};
  workers.pool.Reconnect(WorkerProcess{key, (*rollout)->incarnation() + 1});
  REQUIRE(*workers.pool.rollout(0) == *rollout);
  workers.pool.Reconnect(WorkerProcess{key, (*rollout)->incarnation()});
  REQUIRE(absl::IsCancelled(unanswered.get()));
  REQUIRE(workers.Verify().get().ok());
  REQUIRE(workers.rollout.calls == 2);
}

TEST_CASE("A trainer that is connected anew is called as of its group", "[services][reconnect]") {
  RelayedWorkers workers;
  const auto trainer = *workers.pool.trainer(0);
  REQUIRE(testing::StatusOf([&](auto done) { trainer->Reset({.generation = 7}, done); }).ok());
  REQUIRE(workers.Optimize().ok());
  workers.trainer_relay.Swallow();
  workers.pool.Reconnect();
  REQUIRE(*workers.pool.trainer(0) != trainer);
  workers.trainer.generation = -1;
  REQUIRE(workers.Optimize().ok());
  REQUIRE(workers.trainer.generation == 7);
}

}  // namespace tandem
