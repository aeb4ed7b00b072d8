// Rewards from a service or from the configured functions: only finite numbers are accepted.
#include "controller/step/scoring.h"

#include <atomic>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>

#include "common/net/server.h"
#include "common/types/sample.h"
#include "controller/reward/composite_reward.h"
#include "tandem/v1/config.pb.h"
#include "tandem/v1/reward.grpc.pb.h"

namespace tandem {
namespace {

// Gives every item 1, and the third what is asked for.
class Service final : public v1::RewardService::Service {
 public:
  std::atomic<double> score = 1, fluency = 1;  // set by a test, read by gRPC's threads

  grpc::Status Score(grpc::ServerContext*,
                     const v1::ScoreRequest* request,
                     v1::ScoreResponse* reply) override {
    for (int i = 0; i < request->items_size(); ++i) {
      v1::ItemScore& item = *reply->add_scores();
      item.set_score(i == 2 ? score.load() : 1);
      (*item.mutable_extras())["fluency"] = i == 2 ? fluency.load() : 1;
    }
    return grpc::Status::OK;
  }
};

std::vector<RewardItem> Items() {
  std::vector<RewardItem> items;
  for (const uint64_t row : {5, 6, 7, 8}) {
    items.push_back({.sample_id = MakeSampleId(row, 1, 2),
                     .data_source = "tandem/addition",
                     .response = "3 + 4 = 7",
                     .ground_truth = "7"});
  }
  return items;
}

absl::StatusOr<std::vector<RewardScore>> Scores(const v1::Reward& config) {
  const auto reward = MakeReward(config);
  REQUIRE(reward.ok());
  return ScoreAll(**reward, Items());
}

void RequireRefused(const absl::Status& status, const std::vector<std::string>& parts) {
  INFO(status.ToString());
  REQUIRE(status.code() == absl::StatusCode::kUnknown);  // no worker is lost by it
  for (const std::string& part : parts) {
    INFO(part);
    REQUIRE(status.message().find(part) != std::string::npos);
  }
}

TEST_CASE("A reward service's NaN and infinities are refused with sample, key and value",
          "[scoring]") {
  Service service;
  const auto server =
      RpcServer::Start("127.0.0.1:0", {&service}, {.open_to_this_host = true}).value();
  v1::Reward config = DefaultConfig().reward();
  config.set_function("remote");
  config.set_service_address(server->address());
  const auto fine = Scores(config);
  REQUIRE(fine.ok());
  REQUIRE(fine->size() == 4);
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double infinity = std::numeric_limits<double>::infinity();
  const std::vector<std::string> where = {"sample 0x7001002", "prompt 7 of the data",
                                          "tandem/addition", "correct the service"};
  for (const auto& [value, text] :
       {std::pair{nan, "nan"}, {infinity, "inf"}, {-infinity, "-inf"}}) {
    INFO(text);
    service.score = value;
    service.fluency = 1;
    RequireRefused(Scores(config).status(), where);
    RequireRefused(Scores(config).status(), {std::string("the reward's score is ") + text});
    service.score = 1;
    service.fluency = value;
    RequireRefused(Scores(config).status(), where);
    RequireRefused(Scores(config).status(), {std::string("the reward's fluency is ") + text});
  }
}

TEST_CASE("Weights of terms whose sum is not a number any more are refused", "[scoring]") {
  v1::Reward config = DefaultConfig().reward();
  v1::RewardTerm* format = config.add_terms();
  format->set_name("format");
  format->set_args(R"({"pattern": "="})");
  format->set_weight(std::numeric_limits<double>::max());
  REQUIRE(Scores(config).ok());
  *config.add_terms() = *format;
  config.mutable_terms(1)->set_name("regex");  // whose last capture is the ground truth
  config.mutable_terms(1)->set_args(R"({"pattern": "[0-9]"})");
  RequireRefused(Scores(config).status(), {"sample 0x5001002", "score with all terms is inf",
                                           "the weights of reward.terms"});
}

}  // namespace
}  // namespace tandem
