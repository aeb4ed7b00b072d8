#include "controller/reward/reward_client.h"

#include <atomic>

#include <catch2/catch.hpp>
#include <grpcpp/grpcpp.h>

#include "common/net/server.h"
#include "tandem/v1/reward.grpc.pb.h"
#include "tests/fakes/fake_clock.h"

using namespace tandem;  // NOLINT(google-build-using-namespace)

namespace {

// Scores the length of the response; can fail the first calls.
class LengthService final : public v1::RewardService::Service {
 public:
  std::atomic<int> failures_left{0};
  std::atomic<int> calls{0};
  std::atomic<int> drop_scores{0};

  grpc::Status Score(grpc::ServerContext*,
                     const v1::ScoreRequest* request,
                     v1::ScoreResponse* reply) override {
    ++calls;
    if (failures_left-- > 0) return {grpc::StatusCode::UNAVAILABLE, "warming up"};
    for (const v1::ScoreItem& item : request->items()) {
      v1::ItemScore& score = *reply->add_scores();
      score.set_score(static_cast<double>(item.response().size()));
      if (!item.response().empty()) score.set_prediction(item.response());
    }
    if (drop_scores > 0) reply->mutable_scores()->RemoveLast();
    return grpc::Status::OK;
  }
};

std::vector<RewardItem> Items(int count) {
  std::vector<RewardItem> items(static_cast<size_t>(count));
  for (int i = 0; i < count; ++i) items[static_cast<size_t>(i)].response = std::string(i % 7, 'x');
  return items;
}

struct RewardClientFixture {
  LengthService service;
  std::unique_ptr<RpcServer> server =
      RpcServer::Start("127.0.0.1:0", {&service}, {.open_to_this_host = true}).value();
  testing::FakeClock clock;
  RewardClientOptions Options(int64_t retries) {
    RewardClientOptions options;
    options.address = server->address();
    options.retries = retries;
    options.clock = &clock;
    return options;
  }
};

}  // namespace

TEST_CASE("The remote reward scores batches in order and retries", "[reward][client]") {
  RewardClientFixture f;
  f.service.failures_left = 2;
  const auto reward = MakeRemoteReward(f.Options(3)).value();
  const auto scores = reward->Score(Items(600)).value();
  REQUIRE(scores.size() == 600);
  REQUIRE(scores[599].score == 599 % 7);
  REQUIRE(scores[599].prediction == std::string(599 % 7, 'x'));
  REQUIRE_FALSE(scores[595].prediction.has_value());  // the service gave none
  REQUIRE(f.service.calls == 5);                      // three batches, two failed attempts
}

TEST_CASE("The remote reward stays below a server's default of 4 MiB", "[reward][client]") {
  LengthService service;
  grpc::ServerBuilder builder;  // not ours, which takes more
  int port = 0;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  builder.RegisterService(&service);
  const auto server = builder.BuildAndStart();
  RewardClientOptions options;
  options.address = "127.0.0.1:" + std::to_string(port);
  options.retries = 0;
  std::vector<RewardItem> items = Items(100);
  for (RewardItem& item : items) item.prompt = std::string(100'000, 'p');
  const auto scores = MakeRemoteReward(options).value()->Score(items);
  INFO(scores.status().ToString());
  REQUIRE(scores.ok());
  REQUIRE(scores->size() == 100);
  REQUIRE((*scores)[99].score == 99 % 7);
  REQUIRE(service.calls == 4);
}

TEST_CASE("The remote reward gives up after its retries and says where", "[reward][client]") {
  RewardClientFixture f;
  f.service.failures_left = 100;
  const auto status = MakeRemoteReward(f.Options(2)).value()->Score(Items(1)).status();
  REQUIRE(status.code() == absl::StatusCode::kUnknown);  // no lost worker
  REQUIRE(f.service.calls == 3);
  REQUIRE(std::string(status.message()).find(f.server->address()) != std::string::npos);
  REQUIRE(std::string(status.message()).find("3 attempt") != std::string::npos);
}

TEST_CASE("The remote reward waits twice as long before every further attempt, up to a bound",
          "[reward][client]") {
  RewardClientFixture f;
  f.service.failures_left = 100;
  RewardClientOptions options = f.Options(6);
  options.longest_backoff = absl::Seconds(5);
  const Instant begin = f.clock.Now();
  REQUIRE_FALSE(MakeRemoteReward(options).value()->Score(Items(1)).ok());
  REQUIRE(f.service.calls == 7);
  REQUIRE(f.clock.Now() - begin == absl::Seconds(0.5 + 1 + 2 + 4 + 5 + 5));
}

TEST_CASE("A run that is interrupted does not wait for the remote reward", "[reward][client]") {
  RewardClientFixture f;
  f.service.failures_left = 100;
  const auto reward = MakeRemoteReward(f.Options(100)).value();
  const Instant begin = f.clock.Now();
  reward->EndWhen([&] { return f.clock.Now() - begin >= absl::Seconds(2); });
  REQUIRE(absl::IsCancelled(reward->Score(Items(1)).status()));
  REQUIRE(f.service.calls == 3);  // after 0, 0.5 and 1.5 s
  REQUIRE(f.clock.Now() - begin == absl::Seconds(2));
}

TEST_CASE("The remote reward refuses a reply of the wrong length", "[reward][client]") {
  RewardClientFixture f;
  f.service.drop_scores = 1;
  const auto status = MakeRemoteReward(f.Options(2)).value()->Score(Items(2)).status();
  REQUIRE(status.code() == absl::StatusCode::kUnknown);
  REQUIRE(f.service.calls == 1);
}
