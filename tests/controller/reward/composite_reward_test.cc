#include "controller/reward/composite_reward.h"

#include <catch2/catch.hpp>

using namespace tandem;  // NOLINT(google-build-using-namespace)

TEST_CASE("The composite reward adds weighted terms and reports each", "[reward][composite]") {
  v1::Reward config = DefaultConfig().reward();
  v1::RewardTerm* term = config.add_terms();
  term->set_name("format");
  term->set_weight(0.5);
  term->set_args(R"({"pattern": "="})");
  const auto reward = MakeReward(config).value();
  RewardItem right, wrong;
  right.data_source = wrong.data_source = "tandem/addition";
  right.ground_truth = wrong.ground_truth = "7";
  right.response = "3 + 4 = 7";
  wrong.response = "8";
  const auto scores = reward->Score({right, wrong}).value();
  REQUIRE(scores[0].score == 1.5);
  REQUIRE(scores[0].extras.at("score") == 1.0);
  REQUIRE(scores[0].extras.at("format") == 1.0);
  REQUIRE(scores[1].score == 0.0);
}

TEST_CASE("The composite reward refuses what nobody can score", "[reward][composite]") {
  const auto reward = MakeReward(DefaultConfig().reward()).value();
  RewardItem item;
  item.data_source = "unknown/source";
  REQUIRE(reward->Score({item}).status().code() == absl::StatusCode::kInvalidArgument);

  v1::Reward remote = DefaultConfig().reward();
  remote.set_function("remote");
  REQUIRE(std::string(MakeReward(remote).status().message()).find("service_address") !=
          std::string::npos);
  // Beyond this host with this host's certificates, on it without.
  remote.set_service_address("node7:5000");
  const RpcSecurity security{.cert = "/nonexistent/cert.pem", .key = "k", .ca = "c"};
  REQUIRE(absl::IsInvalidArgument(MakeReward(remote).status()));
  REQUIRE(std::string(MakeReward(remote, security).status().message()).find("/nonexistent/cert") !=
          std::string::npos);
  remote.set_service_address("127.0.0.1:5000");
  REQUIRE(MakeReward(remote, security).ok());
  v1::Reward bad_term = DefaultConfig().reward();
  bad_term.add_terms()->set_name("nonsense");
  REQUIRE_FALSE(MakeReward(bad_term).ok());
}
