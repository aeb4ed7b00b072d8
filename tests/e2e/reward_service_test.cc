// A reward service disappears during a run: the run does not recover from that and says so.
#include <atomic>

#include <catch2/catch.hpp>

#include "common/net/server.h"
#include "tandem/v1/reward.grpc.pb.h"
#include "tests/support/cluster_rig.h"
#include "tests/support/text.h"

namespace tandem::testing {
namespace {

// Scores the length of a response; unavailable after a number of calls.
class LengthService final : public v1::RewardService::Service {
 public:
  explicit LengthService(int calls) : calls_left_(calls) {}
  grpc::Status Score(grpc::ServerContext*,
                     const v1::ScoreRequest* request,
                     v1::ScoreResponse* reply) override {
    if (calls_left_-- <= 0) return {grpc::StatusCode::UNAVAILABLE, "gone fishing"};
    for (const v1::ScoreItem& item : request->items()) {
      reply->add_scores()->set_score(static_cast<double>(item.response().size()));
    }
    return grpc::Status::OK;
  }

 private:
  std::atomic<int> calls_left_;
};

TEST_CASE("a reward service that goes away ends the run with its name and without recovery") {
  ClusterRig rig;
  rig.SetPairs(2);
  const std::string address = "unix:" + (rig.dir() / "reward.sock").string();
  rig.Set("reward.function", "remote");
  rig.Set("reward.service_address", address);
  rig.Set("reward.terms", "[]");
  rig.Set("reward.retries", "1");
  {
    LengthService service(1);  // of step 1
    const auto server = *RpcServer::Start(address, {&service}, {.open_to_this_host = true});
    const int code = rig.Launch({"--grace", "5"}).Wait();
    const std::string said = rig.Log("launcher") + rig.Log("controller");
    INFO(said);
    REQUIRE(code == 70);
    REQUIRE(Has(said, "reward service " + address + " failed after 2 attempt(s)"));
    REQUIRE(Has(said, "gone fishing"));
    REQUIRE_FALSE(Has(said, "recovering"));
    REQUIRE_FALSE(Has(said, "restart 1 of"));
    REQUIRE(rig.LeftBehind() == "");
    REQUIRE(rig.Metrics().size() == 1);
    REQUIRE_FALSE(rig.Weights(1).empty());
  }
  LengthService service(1000);
  const auto server = *RpcServer::Start(address, {&service}, {.open_to_this_host = true});
  const int code = rig.Launch().Wait();
  INFO(rig.Log("launcher"));
  REQUIRE(code == 0);
  REQUIRE(Has(rig.Log("launcher"), "resuming after step 1"));
  REQUIRE(rig.Metrics().size() == 3);
}

}  // namespace
}  // namespace tandem::testing
