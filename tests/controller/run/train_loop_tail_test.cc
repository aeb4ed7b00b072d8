// The cost of the end of generation in a step's metrics.
#include <catch2/catch.hpp>

#include "controller/run/train_loop.h"
#include "controller/store/run_store.h"
#include "tests/fakes/fake_run.h"

namespace tandem {
namespace {

// Needs ten seconds for a request.
class TenSecondRollout : public testing::FakeRolloutClient {
 public:
  TenSecondRollout(testing::FakeRun& run, int rank, int64_t incarnation)
      : FakeRolloutClient(run.journal, rank, incarnation), clock_(run.clock) {}

  void Generate(const GroupRequest& request,
                std::function<void(Sample)> on_sample,
                std::function<void(absl::Status)> on_done) override {
    clock_.Advance(absl::Seconds(10));
    FakeRolloutClient::Generate(request, std::move(on_sample), std::move(on_done));
  }

 private:
  testing::FakeClock& clock_;
};

}  // namespace

TEST_CASE("Every step tells what its tail left empty and what caps would save", "[train_loop]") {
  testing::FakeRun run(1);
  run.options.samples_per_prompt = 1;
  run.options.tail = {.slots = 2, .caps = {{"split_2", 1}}};
  run.fleet_options.max_in_flight_samples = 1;  // the second prompt waits for the first
  run.make_rollout = [&](int rank, int64_t incarnation) {
    return std::make_shared<TenSecondRollout>(run, rank, incarnation);
  };
  REQUIRE(run.Run().ok());
  REQUIRE(run.store.steps.size() == 2);
  for (const auto& [number, step] : run.store.steps) {
    REQUIRE(step.metrics.at(kTailEmptySlotSeconds) == 10);
    REQUIRE(step.metrics.at(kTailShare) == Approx(0.25));
    REQUIRE(step.metrics.contains("partial/predicted_saving_s/split_2"));
    REQUIRE_FALSE(step.metrics.contains("partial/predicted_saving_s/split_4"));
  }
}

TEST_CASE("Rounds tell what they leave empty, and predict nothing", "[train_loop][partial]") {
  testing::FakeRun run(1);
  run.options.samples_per_prompt = 1;
  run.options.tail = {.slots = 2};
  run.options.partial = {.enabled = true,
                         .cap = 4,
                         .groups_per_round = 2,
                         .train_batch_size = 2,
                         .response_length = 8};
  run.fleet_options.max_in_flight_samples = 1;
  run.make_rollout = [&](int rank, int64_t incarnation) {
    return std::make_shared<TenSecondRollout>(run, rank, incarnation);
  };
  REQUIRE(run.Run().ok());
  for (const auto& [number, step] : run.store.steps) {
    REQUIRE(step.metrics.at("partial/rounds") == 1);
    REQUIRE(step.metrics.at(kTailEmptySlotSeconds) == 10);
    REQUIRE(step.metrics.at(kTailShare) == Approx(0.25));
    REQUIRE_FALSE(step.metrics.contains("partial/predicted_saving_s/split_2"));
  }
}

TEST_CASE("Batches of dynamic sampling are passes of their own", "[train_loop][dynamic_sampling]") {
  testing::FakeRun run(1);
  run.options.total_steps = 1;
  run.options.tail = {.slots = 8};
  run.fleet_options.max_in_flight_samples = 1;
  run.options.filter_groups = {.enable = true, .metric = "right", .max_batches = 5};
  // The second group of each batch is all right and filtered out: two batches fill the step.
  run.reward.value = [](uint64_t id) {
    return ((id >> 24) & 1u) == 1 ? 1.0 : static_cast<double>(id & 1u);
  };
  run.make_rollout = [&](int rank, int64_t incarnation) {
    return std::make_shared<TenSecondRollout>(run, rank, incarnation);
  };
  REQUIRE(run.Run().ok());
  const auto& metrics = run.store.steps.at(1).metrics;
  REQUIRE(metrics.at(kGenerationBatches) == 2);
  // In each batch four samples come after ten seconds and four after twenty.
  REQUIRE(metrics.at(kTailEmptySlotSeconds) == 80);
  REQUIRE(metrics.at(kTailShare) == Approx(0.25));
}

}  // namespace tandem
