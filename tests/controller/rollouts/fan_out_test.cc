// Which rollouts are a chain, and what a sync does when a part of one fails.
#include "controller/rollouts/fan_out.h"

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include "common/net/protocol.h"
#include "controller/rollouts/weight_sync.h"
#include "tests/fakes/fake_clock.h"
#include "tests/fakes/fake_run.h"
#include "tests/support/text.h"

namespace tandem {
namespace {

using testing::FakeRun;
using Rounds = std::vector<SyncRound>;

SyncRoutes AllOfTrainer0(int rollouts) {
  std::vector<SyncRoute> routes;
  for (int rank = 0; rank < rollouts; ++rank) routes.push_back({.trainer = 0, .rollout = rank});
  return SyncRoutes(routes);
}

// A trainer and three rollouts, with the trainer's syncs along chains answered by `outcomes`.
struct ChainedSync {
  FakeRun run{Topology{.trainers = 1, .rollouts = 3, .apart = true}};
  std::function<std::vector<SyncOutcome>(const std::vector<SyncTarget>&)> outcomes;
  WorkerPool pool{
      run.registry,
      {.trainer =
           [this](const WorkerEntry& entry) -> absl::StatusOr<std::shared_ptr<TrainerClient>> {
         auto client = std::make_shared<testing::FakeTrainerClient>(
             run.journal, entry.key().rank, entry.incarnation, ForwardBackwardReply{});
         client->on_chain = [this](const std::vector<SyncTarget>& chain) {
           return outcomes(chain);
         };
         return client;
       },
       .rollout =
           [this](const WorkerEntry& entry) -> absl::StatusOr<std::shared_ptr<RolloutClient>> {
         return std::make_shared<testing::FakeRolloutClient>(run.journal, entry.key().rank,
                                                             entry.incarnation);
       }},
      {.trainers = 1, .rollouts = 3, .apart = true},
      run.clock};
  WeightSync weights{pool,
                     AllOfTrainer0(3),
                     MakeFullCheckFiles({.model_dir = "/model"}),
                     {.when = CheckPolicy::When::kOff},
                     ScrambleMode::kOff,
                     OverTcpByHost(run.registry, true),
                     MakeFanOut("auto", run.registry, OverTcpByHost(run.registry, true))};

  std::string Address(int rollout) { return (*pool.rollout(rollout))->address(); }
  int64_t Sent(const std::string& to) {
    return run.journal.Count("trainer 0 SyncWeights(v0, targets 0, " + to + ")");
  }
  std::string Chain() { return Address(0) + " > " + Address(1) + " > " + Address(2); }
};

}  // namespace

TEST_CASE("three rollouts over TCP are a chain by themselves, two where it is asked for",
          "[weight_sync]") {
  testing::FakeClock clock;
  const WorkerRegistry registry({.topology = {.trainers = 1, .rollouts = 3, .apart = true}}, clock);
  const OverTcp all = [](const SyncRoute&) { return true; };
  const OverTcp none = [](const SyncRoute&) { return false; };
  const SyncRoutes routes = AllOfTrainer0(3);
  const auto rounds = [&](const std::string& key, const OverTcp& over_tcp,
                          const std::vector<int>& receivers) {
    return MakeFanOut(key, registry, over_tcp)->Rounds(routes, receivers);
  };
  const Rounds star = {{{0, {0}}}, {{0, {1}}}, {{0, {2}}}};
  REQUIRE(rounds("auto", all, {0, 1, 2}) == Rounds{{{0, {0, 1, 2}}}});
  REQUIRE(rounds("chain", all, {0, 1, 2}) == Rounds{{{0, {0, 1, 2}}}});
  REQUIRE(rounds("star", all, {0, 1, 2}) == star);
  for (const std::string key : {"auto", "chain", "star"}) {
    REQUIRE(rounds(key, none, {0, 1, 2}) == star);
    REQUIRE(rounds(key, all, {}).empty());
    REQUIRE(rounds(key, all, {1}) == Rounds{{{0, {1}}}});
  }
  REQUIRE(rounds("auto", all, {0, 2}) == Rounds{{{0, {0}}}, {{0, {2}}}});
  REQUIRE(rounds("chain", all, {0, 2}) == Rounds{{{0, {0, 2}}}});
}

TEST_CASE("rollouts that share a host with their trainer are not in its chain", "[weight_sync]") {
  testing::FakeClock clock;
  const WorkerRegistry registry({.topology = {.trainers = 2, .rollouts = 8, .apart = true}}, clock);
  const OverTcp over_tcp = [](const SyncRoute& route) { return route.rollout != 2; };
  std::vector<SyncRoute> routes;
  for (int rank = 0; rank < 8; ++rank) routes.push_back({.trainer = rank % 2, .rollout = rank});
  const auto rounds =
      MakeFanOut("auto", registry, over_tcp)->Rounds(SyncRoutes(routes), {0, 1, 2, 3, 4, 5, 6, 7});
  REQUIRE(rounds == Rounds{{{0, {2}}, {1, {1, 3, 5, 7}}}, {{0, {0, 4, 6}}}});
}

TEST_CASE("rollouts of a host are neighbours in a chain", "[weight_sync]") {
  testing::FakeClock clock;
  WorkerRegistry registry(
      {.topology = {.trainers = 1, .rollouts = 4, .apart = true, .rollout_hosts = 2}}, clock);
  for (int rank = 0; rank < 4; ++rank) {
    const auto entered =
        registry.Register({.protocol = kProtocolVersion,
                           .key = {WorkerRole::kRollout, rank},
                           .address = "10.0.0.1:7",
                           .host = {.boot_id = "kernel", .node = rank / 2 == 0 ? "a" : "b"},
                           .device = "cpu:" + std::to_string(rank),
                           .boot_nonce = std::to_string(rank)});
    INFO(entered.status().ToString());
    REQUIRE(entered.ok());
  }
  const OverTcp all = [](const SyncRoute&) { return true; };
  REQUIRE(MakeFanOut("auto", registry, all)->Rounds(AllOfTrainer0(4), {0, 2, 1, 3}) ==
          Rounds{{{0, {0, 1, 2, 3}}}});
}

TEST_CASE("rollouts behind one that failed are sent the version again, and it too if it lives",
          "[weight_sync]") {
  ChainedSync sync;
  const absl::Status refusal = GENERATE(absl::DataLossError("arrived damaged"),
                                        absl::UnavailableError("the connection has ended"));
  sync.outcomes = [&](const std::vector<SyncTarget>&) {
    return std::vector<SyncOutcome>{
        {.received_bytes = 10, .forwarded_bytes = 10}, {.status = refusal}, {.status = refusal}};
  };
  const auto synced = sync.weights.Sync(0, "");
  INFO(synced.status().ToString());
  REQUIRE(synced.ok());
  REQUIRE(sync.Sent(sync.Chain()) == 1);
  // Two that are left are a star.
  REQUIRE(sync.Sent(sync.Address(1) + ", tcp") == 1);
  REQUIRE(sync.Sent(sync.Address(2) + ", tcp") == 1);
  REQUIRE(synced->sent.size() == 3);
  REQUIRE(synced->received_bytes == 10);
  REQUIRE(synced->forwarded_bytes == 10);
  REQUIRE(sync.run.registry.Missing().empty());
  REQUIRE(sync.weights.Wake().ok());
  REQUIRE(sync.weights.Complete(0));
}

TEST_CASE("a rollout of a chain that does not answer is lost, and ends the sync", "[weight_sync]") {
  ChainedSync sync;
  sync.outcomes = [](const std::vector<SyncTarget>&) {
    return std::vector<SyncOutcome>{
        {},
        {.status = WithOrigin(absl::UnavailableError("socket closed"), FailureOrigin::kPartner)},
        {.status = absl::UnavailableError("the connection has ended")}};
  };
  const absl::Status failed = sync.weights.Sync(0, "").status();
  INFO(failed.ToString());
  REQUIRE(absl::IsUnavailable(failed));
  REQUIRE(testing::Says(failed, "rollout 1 (reported by trainer 0): socket closed"));
  REQUIRE(sync.run.registry.Missing().size() == 1);
  REQUIRE(sync.run.registry.Missing()[0].rfind("rollout 1 (lost", 0) == 0);
  REQUIRE_FALSE(sync.weights.Complete(0));
}

TEST_CASE("rollouts of a chain that refuse twice end the sync with what they said",
          "[weight_sync]") {
  ChainedSync sync;
  sync.outcomes = [](const std::vector<SyncTarget>&) {
    const absl::Status refused = absl::DataLossError("arrived damaged");
    return std::vector<SyncOutcome>{{.status = refused}, {.status = refused}, {.status = refused}};
  };
  const absl::Status failed = sync.weights.Sync(0, "").status();
  REQUIRE(absl::IsDataLoss(failed));
  REQUIRE(testing::Says(failed, "rollout 0 (reported by trainer 0): arrived damaged"));
  REQUIRE(sync.Sent(sync.Chain()) == 2);
}

}  // namespace tandem
