// Who sends weights to whom, where the ranks of a route differ.
#include "controller/rollouts/weight_sync.h"

#include <memory>
#include <string>
#include <utility>

#include <catch2/catch.hpp>

#include "common/net/protocol.h"
#include "tests/fakes/fake_clock.h"
#include "tests/fakes/fake_run.h"
#include "tests/support/text.h"

namespace tandem {
namespace {

using testing::FakeRun;

SyncRoutes CrossedRoutes() {
  return SyncRoutes({{.trainer = 0, .rollout = 1}, {.trainer = 1, .rollout = 0}});
}

// A check by it names the trainer and the address that it was given.
class TellingTrainer : public testing::FakeTrainerClient {
 public:
  TellingTrainer(testing::CallJournal& journal, int rank, int64_t incarnation)
      : FakeTrainerClient(journal, rank, incarnation, {}), rank_(rank) {}
  void CheckWeights(const CheckCall& command, Done<WeightCheckResult> done) override {
    done(WeightCheckResult{
        .expected = 1,
        .checked = 1,
        .mismatched = 1,
        .first_difference = fmt::format("trainer {} at {}", rank_, command.rollout_address)});
  }

 private:
  const int rank_;
};

// Syncs a fake run's workers by routes that cross.
struct CrossedSync {
  explicit CrossedSync(CheckPolicy check = {.when = CheckPolicy::When::kOff},
                       bool always_over_tcp = false)
      : weights(pool,
                CrossedRoutes(),
                MakeFullCheckFiles({.model_dir = "/model"}),
                check,
                ScrambleMode::kFirst,
                OverTcpByHost(run.registry, always_over_tcp)) {}

  FakeRun run{2};
  WorkerPool pool{
      run.registry,
      {.trainer =
           [this](const WorkerEntry& entry) -> absl::StatusOr<std::shared_ptr<TrainerClient>> {
         return std::make_shared<TellingTrainer>(run.journal, entry.key().rank, entry.incarnation);
       },
       .rollout =
           [this](const WorkerEntry& entry) -> absl::StatusOr<std::shared_ptr<RolloutClient>> {
         return std::make_shared<testing::FakeRolloutClient>(run.journal, entry.key().rank,
                                                             entry.incarnation);
       }},
      {.trainers = 2, .rollouts = 2},
      run.clock};
  WeightSync weights;
};

std::string AddressOf(WorkerPool& pool, int rollout) { return (*pool.rollout(rollout))->address(); }

}  // namespace

TEST_CASE("routes find the other end, and a trainer without a route sends nothing",
          "[weight_sync]") {
  const SyncRoutes routes({{.trainer = 2, .rollout = 1}, {.trainer = 1, .rollout = 0}});
  REQUIRE(routes.list() ==
          std::vector<SyncRoute>{{.trainer = 1, .rollout = 0}, {.trainer = 2, .rollout = 1}});
  REQUIRE(routes.TrainerOf(1) == 2);
  const auto rounds = routes.Rounds({0, 1});
  REQUIRE(rounds == std::vector<RolloutOfTrainer>{{{1, 0}, {2, 1}}});
}

TEST_CASE("rollouts of one trainer are in rounds of their own, the others in the first",
          "[weight_sync]") {
  const TrainOptions options;
  const Topology topology{.trainers = 2, .rollouts = 5, .apart = true};
  const SyncRoutes routes = MakePlacement(topology, options)->Routes();
  REQUIRE(routes.Rounds({0, 1, 2, 3, 4}) ==
          std::vector<RolloutOfTrainer>{{{0, 0}, {1, 1}}, {{0, 2}, {1, 3}}, {{0, 4}}});
  // Of rollouts that came back, two of one trainer and one of the other.
  REQUIRE(routes.Rounds({1, 2, 3}) == std::vector<RolloutOfTrainer>{{{0, 2}, {1, 1}}, {{1, 3}}});
  REQUIRE(routes.Rounds({}).empty());
}

TEST_CASE("where trainer and rollout share a device, equal ranks are a route", "[weight_sync]") {
  const TrainOptions options;
  const SyncRoutes routes = MakePlacement({.trainers = 3, .rollouts = 3}, options)->Routes();
  REQUIRE(routes.list().size() == 3);
  for (int rank = 0; rank < 3; ++rank) REQUIRE(routes.TrainerOf(rank) == rank);
}

TEST_CASE("each trainer sends to the rollout of its route", "[weight_sync]") {
  CrossedSync sync;
  REQUIRE(sync.weights.Sync(0, "").ok());
  REQUIRE(sync.weights.Wake().ok());
  const auto sent = [&](int trainer, int rollout) {
    return sync.run.journal.Count(
        fmt::format("trainer {} SyncWeights(v0, targets 0+1, {}, scramble)", trainer,
                    AddressOf(sync.pool, rollout)));
  };
  REQUIRE(sent(0, 1) == 1);
  REQUIRE(sent(1, 0) == 1);
  REQUIRE(sync.weights.Complete(0));

  // Of a rollout that alone lacks the weights, only its sender is told to send.
  sync.weights.Forget({0});
  sync.run.journal.Take();
  REQUIRE(sync.weights.Sync(0, "").ok());
  REQUIRE(sync.run.journal.Count("trainer 0 SyncWeights(v0, targets 1, )") == 1);
  REQUIRE(sync.run.journal.Count(fmt::format("trainer 1 SyncWeights(v0, targets 1, {})",
                                             AddressOf(sync.pool, 0))) == 1);
}

TEST_CASE("weights go over TCP where they are to, and not between workers of one host",
          "[weight_sync]") {
  const bool forced = GENERATE(false, true);
  CrossedSync sync({.when = CheckPolicy::When::kOff}, forced);
  REQUIRE(sync.weights.Sync(0, "").ok());
  const auto sent = [&](int trainer, int rollout) {
    return sync.run.journal.Count(
        fmt::format("trainer {} SyncWeights(v0, targets 0+1, {}, scramble{})", trainer,
                    AddressOf(sync.pool, rollout), forced ? ", tcp" : ""));
  };
  REQUIRE(sent(0, 1) == 1);
  REQUIRE(sent(1, 0) == 1);
}

TEST_CASE("weights go over TCP between two nodes, also of one kernel", "[weight_sync]") {
  testing::FakeClock clock;
  WorkerRegistry registry(
      {.topology = {.trainers = 1, .rollouts = 2, .apart = true, .rollout_hosts = 2}}, clock);
  const auto enter = [&](WorkerKey key, const std::string& node) {
    const auto entered = registry.Register({.protocol = kProtocolVersion,
                                            .key = key,
                                            .address = "10.0.0.1:7",
                                            .host = {.boot_id = "kernel", .node = node},
                                            .device = "cpu:0",
                                            .boot_nonce = key.Text()});
    INFO(entered.status().ToString());
    REQUIRE(entered.ok());
  };
  enter({WorkerRole::kTrainer, 0}, "a");
  enter({WorkerRole::kRollout, 0}, "a");
  enter({WorkerRole::kRollout, 1}, "b");
  const OverTcp over_tcp = OverTcpByHost(registry, false);
  REQUIRE_FALSE(over_tcp({.trainer = 0, .rollout = 0}));
  REQUIRE(over_tcp({.trainer = 0, .rollout = 1}));
  REQUIRE(OverTcpByHost(registry, true)({.trainer = 0, .rollout = 0}));
}

TEST_CASE("a check's results are those of the rollouts, whoever looked at them", "[weight_sync]") {
  CrossedSync sync({.when = CheckPolicy::When::kAlways});
  const auto results = sync.weights.Check("");
  REQUIRE(results.ok());
  REQUIRE(results->at(0).first_difference == "trainer 1 at " + AddressOf(sync.pool, 0));
  REQUIRE(results->at(1).first_difference == "trainer 0 at " + AddressOf(sync.pool, 1));
  const absl::Status published = sync.weights.Sync(0, "").status();
  REQUIRE(absl::IsDataLoss(published));
  REQUIRE(testing::Says(published, "rollout 0 does not hold the weights"));
  REQUIRE(testing::Says(published, "first: trainer 1 at " + AddressOf(sync.pool, 0)));
}

TEST_CASE("a trainer that cannot reach its rollout blames the one of its route", "[weight_sync]") {
  CrossedSync sync;
  sync.run.journal.FailNext(
      "trainer 0", "SyncWeights",
      WithOrigin(absl::UnavailableError("BeginUpdate: socket closed"), FailureOrigin::kPartner));
  const absl::Status failed = sync.weights.Sync(0, "").status();
  REQUIRE(testing::Says(failed, "rollout 1 (reported by trainer 0): BeginUpdate: socket closed"));
  REQUIRE(sync.run.registry.Missing().size() == 1);
  REQUIRE(sync.run.registry.Missing()[0].rfind("rollout 1 (lost", 0) == 0);
}

TEST_CASE("apart, every rollout is sent the weights by its publisher, once, and checked",
          "[weight_sync]") {
  FakeRun run(Topology{.trainers = 2, .rollouts = 3, .apart = true}, 3,
              {.when = CheckPolicy::When::kAlways});
  const auto synced = run.weights.Sync(0, "");
  INFO(synced.status().ToString());
  REQUIRE(synced.ok());
  REQUIRE(synced->ranks == std::vector<int>{0, 1, 2});
  REQUIRE(synced->sent.size() == 3);
  REQUIRE(synced->rounds.size() == 2);
  REQUIRE(synced->checks.size() == 2);
  REQUIRE(testing::Has(synced->checked, "on each of 3 rollouts"));
  const auto sent = [&](int trainer, const std::string& targets, int rollout) {
    return run.journal.Count(fmt::format("trainer {} SyncWeights(v0, targets {}, {})", trainer,
                                         targets, AddressOf(run.pool, rollout)));
  };
  REQUIRE(sent(0, "0+1", 0) == 1);
  REQUIRE(sent(1, "0+1", 1) == 1);
  REQUIRE(sent(0, "0", 2) == 1);
  // A trainer with nothing to send takes part in the gathers of the second round.
  REQUIRE(run.journal.Count("trainer 1 SyncWeights(v0, targets 0, )") == 1);
  REQUIRE(run.weights.Wake().ok());
  REQUIRE(run.weights.Complete(0));
  REQUIRE(run.weights.TakeSyncs().size() == 3);
}

TEST_CASE("apart, trainers without a rollout gather, and a lost rollout is blamed by its rank",
          "[weight_sync]") {
  FakeRun few(Topology{.trainers = 3, .rollouts = 1, .apart = true});
  REQUIRE(few.weights.Sync(0, "").ok());
  REQUIRE(few.journal.Count("trainer 2 SyncWeights(v0, targets 0, )") == 1);

  FakeRun run(Topology{.trainers = 2, .rollouts = 3, .apart = true});
  run.journal.FailNext("trainer 0", "SyncWeights",
                       WithOrigin(absl::UnavailableError("socket closed"), FailureOrigin::kPartner),
                       1);
  const absl::Status failed = run.weights.Sync(0, "").status();
  REQUIRE(testing::Says(failed, "rollout 2 (reported by trainer 0): socket closed"));
  REQUIRE_FALSE(run.weights.Complete(0));
}

}  // namespace tandem
