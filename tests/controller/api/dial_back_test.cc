// A controller tries the address that a worker announces, and refuses one that it does not reach.
#include <future>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <absl/base/thread_annotations.h>
#include <catch2/catch.hpp>
#include <grpcpp/channel.h>

#include "common/base/mutex.h"
#include "common/base/status.h"
#include "common/net/channel.h"
#include "common/net/grpc_status.h"
#include "common/net/protocol.h"
#include "common/net/server.h"
#include "controller/api/cluster_service.h"
#include "controller/api/health_client.h"
#include "tests/fakes/fake_run.h"
#include "tests/support/free_port.h"
#include "tests/support/patience.h"
#include "tests/support/text.h"

namespace tandem {
namespace {

using testing::Says;

absl::Status Dialled(const std::string& address) {
  std::promise<absl::Status> answer;
  DialBack(address, {.open_to_this_host = true}, testing::kPatience,
           [&answer](absl::Status reached) { answer.set_value(std::move(reached)); });
  return answer.get_future().get();
}

// Calls that wait until the test answers them.
class HeldDials {
 public:
  Dialer dialer() {
    return [this](const std::string& address, std::function<void(absl::Status)> done) {
      const MutexLock lock(held_mutex_);
      held_.emplace_back(address, std::move(done));
    };
  }
  size_t count() {
    const MutexLock lock(held_mutex_);
    return held_.size();
  }
  // Answers the call number `nth`, which was to `address`.
  void Answer(size_t nth, const std::string& address, const absl::Status& reached) {
    std::function<void(absl::Status)> done;
    {
      const MutexLock lock(held_mutex_);
      REQUIRE(held_.at(nth).first == address);
      done = held_[nth].second;
    }
    done(reached);
  }

 private:
  Mutex held_mutex_;
  std::vector<std::pair<std::string, std::function<void(absl::Status)>>> held_
      ABSL_GUARDED_BY(held_mutex_);
};

struct DialledRun {
  testing::FakeRun run{2};
  std::unique_ptr<SampleStore> samples = *SampleStore::Open(run.dir.path() / "samples", 0);
  RankHolders holders{run.dir.path()};
  HeldDials dials;
  ClusterService service{run.registry, holders, *samples, run.upcoming.get(), run.probe,
                         {},           {},      "",       dials.dialer()};
  const std::string address = "unix:" + (run.dir.path() / "c.sock").string();
  std::unique_ptr<RpcServer> server = *RpcServer::Start(address, {&service}, {});

  DialledRun() {
    for (int rank = 0; rank < 2; ++rank) {
      const WorkerKey key{WorkerRole::kRollout, rank};
      run.registry.MarkLost(key, run.registry.Find(key)->incarnation);
    }
    run.clock.Advance(absl::Seconds(10));  // their places are free
  }

  // Registers a rollout in the place of the fake run's.
  std::future<absl::Status> Register(int rank, const std::string& listens, int incarnation = 0) {
    return std::async(std::launch::async, [this, rank, listens, incarnation] {
      v1::RegisterRequest request;
      request.set_protocol(kProtocolVersion);
      request.set_role(v1::ROLE_ROLLOUT);
      request.set_rank(rank);
      request.set_address(listens);
      request.set_boot_id("host");
      request.set_device("cpu:" + std::to_string(rank));
      request.set_boot_nonce("of " + listens);
      request.set_incarnation(incarnation);
      v1::RegisterResponse response;
      grpc::ClientContext context;
      SetDeadline(context, testing::kPatience);
      return FromGrpcStatus(v1::ClusterService::NewStub(*MakeChannel(address))
                                ->Register(&context, request, &response));
    });
  }
  void AwaitDials(size_t count) {
    testing::WaitUntil("calls to workers", [&] { return dials.count() >= count; });
  }
};

}  // namespace

TEST_CASE("A server is reached where it listens, and nowhere else", "[services]") {
  const std::string address = "127.0.0.1:" + std::to_string(testing::FreePort("127.0.0.1"));
  REQUIRE(absl::IsUnavailable(Dialled(address)));
  const auto server = *RpcServer::Start(address, {}, {.open_to_this_host = true});
  REQUIRE(Dialled(address).ok());
  REQUIRE(absl::IsInvalidArgument(Dialled("nowhere")));
}

TEST_CASE("A worker that cannot be reached is refused with both addresses, and holds up nobody",
          "[services]") {
  DialledRun run;
  auto far = run.Register(0, "203.0.113.7:41");
  run.AwaitDials(1);
  auto near = run.Register(1, "127.0.0.1:42");
  run.AwaitDials(2);
  run.dials.Answer(1, "127.0.0.1:42", absl::OkStatus());
  REQUIRE(near.get().ok());  // while the first still waits
  run.dials.Answer(0, "203.0.113.7:41", absl::UnavailableError("no answer"));
  const absl::Status refused = far.get();
  REQUIRE(absl::IsFailedPrecondition(refused));
  for (const char* part : {"rollout 0 on boot host calls from unix:", "announces 203.0.113.7:41",
                           "no answer", "--advertise"}) {
    INFO(part << " in " << refused);
    REQUIRE(Says(refused, part));
  }
  REQUIRE(run.run.registry.Find({WorkerRole::kRollout, 0})->announcement.address !=
          "203.0.113.7:41");
  // The one that was reached is not tried again when it says more of itself.
  REQUIRE(run.Register(1, "127.0.0.1:42").get().ok());
  REQUIRE(run.dials.count() == 2);
}

TEST_CASE("Who answers a call, and a busy process of this host, is reached", "[services]") {
  DialledRun run;
  auto asks_who = run.Register(0, "203.0.113.7:41");
  run.AwaitDials(1);
  run.dials.Answer(0, "203.0.113.7:41", absl::PermissionDeniedError("not for you"));
  REQUIRE(asks_who.get().ok());
  auto late = run.Register(1, "127.0.0.1:42");
  run.AwaitDials(2);
  run.dials.Answer(1, "127.0.0.1:42", absl::DeadlineExceededError("no answer"));
  REQUIRE(late.get().ok());
}

TEST_CASE("A worker of another host that answers late is told to try again, and then taken in",
          "[services]") {
  DialledRun run;
  auto late = run.Register(0, "203.0.113.7:41");
  run.AwaitDials(1);
  run.dials.Answer(0, "203.0.113.7:41", absl::DeadlineExceededError("no answer"));
  const absl::Status again = late.get();
  REQUIRE(absl::IsDeadlineExceeded(again));
  REQUIRE(AnsweredByWorker(again));
  REQUIRE(Says(again, "announces 203.0.113.7:41, where this controller does not reach it"));
  auto later = run.Register(0, "203.0.113.7:41");
  run.AwaitDials(2);
  run.dials.Answer(1, "203.0.113.7:41", absl::OkStatus());
  REQUIRE(later.get().ok());
}

TEST_CASE("A worker that comes back after a restart is not sent away because of a call to it",
          "[services]") {
  DialledRun run;
  auto back = run.Register(0, "203.0.113.7:41", 5);
  run.AwaitDials(1);
  run.dials.Answer(0, "203.0.113.7:41", absl::UnavailableError("connection refused"));
  REQUIRE(absl::IsDeadlineExceeded(back.get()));
}

TEST_CASE("A controller without TLS refuses workers of other hosts", "[services]") {
  DialledRun run;
  auto far = run.Register(0, "203.0.113.7:41");
  run.AwaitDials(1);
  run.dials.Answer(0, "203.0.113.7:41", Dialled("203.0.113.7:41"));
  REQUIRE(Says(far.get(), "203.0.113.7:41 needs mutual TLS"));
}

TEST_CASE("A port of this host where nobody listens is refused at once", "[services]") {
  DialledRun run;
  auto nobody = run.Register(0, "127.0.0.1:41");
  run.AwaitDials(1);
  run.dials.Answer(0, "127.0.0.1:41", absl::UnavailableError("connection refused"));
  REQUIRE(Says(nobody.get(), "does not reach it: connection refused"));
}

}  // namespace tandem
