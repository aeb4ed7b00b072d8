// Who sends weights to whom, where the ranks of a route differ.
#include "controller/rollouts/weight_sync.h"

#include <memory>
#include <string>
#include <utility>

#include <catch2/catch.hpp>

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
  void CheckWeights(const std::string& address,
                    const std::string&,
                    Done<WeightCheckResult> done) override {
    done(WeightCheckResult{.expected = 1,
                           .checked = 1,
                           .mismatched = 1,
                           .first_difference = fmt::format("trainer {} at {}", rank_, address)});
  }

 private:
  const int rank_;
};

// Syncs a fake run's workers by routes that cross.
struct CrossedSync {
  explicit CrossedSync(CheckPolicy check = {.when = CheckPolicy::When::kOff})
      : weights(pool,
                CrossedRoutes(),
                MakeFullCheckFiles({.model_dir = "/model"}),
                check,
                ScrambleMode::kFirst) {}

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
      2,
      run.clock};
  WeightSync weights;
};

std::string AddressOf(WorkerPool& pool, int rollout) { return (*pool.rollout(rollout))->address(); }

}  // namespace

TEST_CASE("routes find the other end, and a trainer without a route sends nothing",
          "[weight_sync]") {
  const SyncRoutes routes({{.trainer = 2, .rollout = 1}, {.trainer = 1, .rollout = 0}});
  REQUIRE(routes.rollouts() == std::vector<int>{0, 1});
  REQUIRE(routes.list().front() == SyncRoute{.trainer = 1, .rollout = 0});
  REQUIRE(routes.TrainerOf(1) == 2);
  REQUIRE(routes.RolloutOf(1) == 0);
  REQUIRE(routes.RolloutOf(0) == std::nullopt);
}

TEST_CASE("where trainer and rollout share a device, equal ranks are a route", "[weight_sync]") {
  const TrainOptions options;
  const SyncRoutes routes = ColocatedPlacement(3, options).Routes();
  REQUIRE(routes.rollouts() == std::vector<int>{0, 1, 2});
  for (const int rank : routes.rollouts()) REQUIRE(routes.TrainerOf(rank) == rank);
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

}  // namespace tandem
