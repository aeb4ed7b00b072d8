#include "controller/workers/agents/host_assignment.h"

#include <string>
#include <vector>

#include <catch2/catch.hpp>

namespace tandem {
namespace {

constexpr Topology kThreeHosts{
    .trainers = 3, .rollouts = 3, .trainer_hosts = 3, .rollout_hosts = 3};
// Two hosts with trainers, then three with a rollout each.
constexpr Topology kApart{
    .trainers = 2, .rollouts = 3, .apart = true, .trainer_hosts = 2, .rollout_hosts = 3};

// "1: trainers 1, rollouts 1" for each host of the plan whose workers the agent runs.
std::vector<std::string> SharesText(const HostAssignment& assignment, int agent) {
  std::vector<std::string> texts;
  for (const AssignedShare& assigned : assignment.SharesOf(agent)) {
    const auto& [trainers, rollouts] = std::pair(assigned.share.trainers, assigned.share.rollouts);
    std::string text = std::to_string(assigned.host) + ":";
    for (int i = 0; i < trainers.count; ++i) text += " t" + std::to_string(trainers.first + i);
    for (int i = 0; i < rollouts.count; ++i) text += " r" + std::to_string(rollouts.first + i);
    texts.push_back(text);
  }
  return texts;
}

using Texts = std::vector<std::string>;

}  // namespace

TEST_CASE("HostAssignment begins with each agent's own host, and nothing moves without a loss",
          "[agents]") {
  HostAssignment assignment(kThreeHosts, 3, 1);
  REQUIRE(SharesText(assignment, 1) == Texts{"1: t1 r1"});
  REQUIRE(SharesText(assignment, 3).empty());
  REQUIRE(assignment.Settle({0, 1, 2, 3}, {}).empty());
  // Nor where an agent has not come yet.
  REQUIRE(assignment.Settle({0, 3}, {}).empty());
  REQUIRE(SharesText(assignment, 2) == Texts{"2: t2 r2"});
}

TEST_CASE("HostAssignment gives a lost host to a spare agent", "[agents]") {
  HostAssignment assignment(kThreeHosts, 3, 1);
  const std::vector<HostMove> moves = assignment.Settle({0, 2, 3}, {1});
  REQUIRE(moves.size() == 1);
  REQUIRE(moves[0].from == 1);
  REQUIRE(moves[0].to == 3);
  REQUIRE_FALSE(moves[0].doubled);
  REQUIRE(moves[0].WorkersText() == "trainer 1 and rollout 1");
  REQUIRE(SharesText(assignment, 3) == Texts{"1: t1 r1"});
  // The lost one comes back: it is the next spare.
  REQUIRE(assignment.Settle({0, 1, 2, 3}, {}).empty());
  REQUIRE(SharesText(assignment, 1).empty());
  REQUIRE(assignment.Settle({1, 2, 3}, {0}).front().to == 1);
  REQUIRE(SharesText(assignment, 1) == Texts{"0: t0 r0"});
}

TEST_CASE("HostAssignment doubles trainers up with their neighbours in rank", "[agents]") {
  HostAssignment assignment(kThreeHosts, 3, 1);
  const std::vector<HostMove> moves = assignment.Settle({0, 2}, {1});
  REQUIRE(moves.size() == 1);
  REQUIRE(moves[0].doubled);
  REQUIRE(moves[0].to == 0);
  REQUIRE(SharesText(assignment, 0) == Texts{"0: t0 r0", "1: t1 r1"});
  // What that agent ran moves as a whole, and stays in one piece.
  REQUIRE(assignment.Settle({2}, {0, 1}).size() == 2);
  REQUIRE(SharesText(assignment, 2) == Texts{"0: t0 r0", "1: t1 r1", "2: t2 r2"});
  // With nobody left, it waits where it is.
  REQUIRE(assignment.Settle({}, {0, 1, 2}).empty());
  REQUIRE(SharesText(assignment, 2).size() == 3);
}

TEST_CASE("HostAssignment keeps ranks of one agent neighbours whoever is lost", "[agents]") {
  constexpr Topology kFive{.trainers = 5, .rollouts = 5, .trainer_hosts = 5, .rollout_hosts = 5};
  for (unsigned lost = 1; lost < 31; ++lost) {
    HostAssignment assignment(kFive, 5, 1);
    std::set<int> here, gone;
    for (int agent = 0; agent < 5; ++agent) {
      ((lost >> static_cast<unsigned>(agent) & 1U) != 0 ? gone : here).insert(agent);
    }
    assignment.Settle(here, gone);
    int hosts = 0;
    for (const int agent : here) {
      const std::vector<AssignedShare> shares = assignment.SharesOf(agent);
      hosts += static_cast<int>(shares.size());
      INFO("lost " << lost << ", agent " << agent);
      REQUIRE(shares.back().host - shares.front().host + 1 == std::ssize(shares));
    }
    REQUIRE(hosts == 5);
  }
}

TEST_CASE("HostAssignment waits for an agent between a lost host and those that are here",
          "[agents]") {
  HostAssignment assignment(kThreeHosts, 3, 1);
  // Agent 1 has not come yet: with ranks 0 and 2, agent 0 would have some that are no neighbours.
  REQUIRE(assignment.Settle({0}, {2}).empty());
  REQUIRE(assignment.Settle({0}, {1, 2}).size() == 2);
  REQUIRE(SharesText(assignment, 0).size() == 3);
}

TEST_CASE("HostAssignment leaves rollouts out, and takes them in with the next agent", "[agents]") {
  HostAssignment assignment(kApart, 5, 2);
  const std::vector<HostMove> moves = assignment.Settle({0, 1, 2, 4}, {3});
  REQUIRE(moves.size() == 1);
  REQUIRE(moves[0].to == HostAssignment::kNobody);
  REQUIRE(moves[0].WorkersText() == "rollout 1");
  REQUIRE(SharesText(assignment, 3).empty());
  // Below min_rollouts the lost host is waited for.
  REQUIRE(assignment.Settle({0, 1, 2}, {3, 4}).empty());
  REQUIRE(SharesText(assignment, 4) == Texts{"4: r2"});
  // Another agent takes the first of them, and so the run can do without the second.
  const std::vector<HostMove> back = assignment.Settle({0, 1, 2, 3}, {4});
  REQUIRE(back.size() == 2);
  REQUIRE(back[0].from == HostAssignment::kNobody);
  REQUIRE(back[0].to == 3);
  REQUIRE(back[1].WorkersText() == "rollout 2");
  REQUIRE(back[1].to == HostAssignment::kNobody);
  REQUIRE(SharesText(assignment, 3) == Texts{"3: r1"});
}

TEST_CASE("HostAssignment lets trainers of a host go on elsewhere without its rollouts",
          "[agents]") {
  // Side by side: hosts 0 and 1 have a trainer and a rollout, host 2 a rollout.
  HostAssignment assignment(kApart, 3, 1);
  REQUIRE(SharesText(assignment, 1) == Texts{"1: t1 r1"});
  REQUIRE(assignment.Settle({0, 2}, {1}).size() == 2);
  REQUIRE(SharesText(assignment, 0) == Texts{"0: t0 r0", "1: t1"});
  REQUIRE(assignment.Settle({0, 1, 2}, {}).size() == 1);
  REQUIRE(SharesText(assignment, 1) == Texts{"1: r1"});
  // Without any other trainer, the agent with the least to do has them.
  constexpr Topology kOneTrainer{
      .trainers = 1, .rollouts = 2, .apart = true, .trainer_hosts = 1, .rollout_hosts = 2};
  HostAssignment single(kOneTrainer, 3, 1);
  REQUIRE(single.Settle({1, 2}, {0}).front().to == 1);
  REQUIRE(SharesText(single, 1) == Texts{"0: t0", "1: r0"});
}

TEST_CASE("HostAssignment learns from an agent what it runs", "[agents]") {
  HostAssignment assignment(kThreeHosts, 3, 1);
  assignment.Adopt(3, {{WorkerRole::kTrainer, 1}, {WorkerRole::kRollout, 1}});
  REQUIRE(SharesText(assignment, 3) == Texts{"1: t1 r1"});
  REQUIRE(SharesText(assignment, 1).empty());
  assignment.Adopt(0, {});
  REQUIRE(SharesText(assignment, 0) == Texts{"0: t0 r0"});
}

}  // namespace tandem
