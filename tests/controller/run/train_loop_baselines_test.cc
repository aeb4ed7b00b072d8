// Greedy baselines inside a step.
#include <catch2/catch.hpp>

#include "controller/run/train_loop.h"
#include "tests/fakes/fake_run.h"

namespace tandem {
TEST_CASE("remax compares with the reward of one greedy response per prompt, never trained on",
          "[train_loop]") {
  testing::FakeRun run(1);
  run.options.total_steps = 1;
  run.options.adv_estimator = "remax";
  run.options.greedy_baselines = true;
  REQUIRE(run.Run().ok());
  REQUIRE(run.journal.Count("rollout 0 Generate(group 0, 4 samples, v0)") == 1);
  REQUIRE(run.journal.Count("rollout 0 Generate(group 0, 1 samples, v0)") == 1);
  REQUIRE(run.journal.Count("rollout 0 Generate(group 1, 1 samples, v0)") == 1);
  // Even ids are wrong, the greedy ones' among them; samples stand on their own reward alone.
  REQUIRE(run.store.Advantages(1) == std::vector<double>{0, 1, 0, 1, 0, 1, 0, 1});
  REQUIRE(run.store.steps.at(1).metrics.at("perf/generated_tokens") == (8 + 2) * 2);
}

TEST_CASE("A rollout lost while greedy responses are generated costs nothing but time",
          "[train_loop][recovery]") {
  const auto options = [](testing::FakeRun& run) {
    run.options.adv_estimator = "remax";
    run.options.greedy_baselines = true;
    run.reward.value = [](uint64_t id) {
      const bool greedy = ((id >> 12) & 0xfffu) == kBaselineEpoch;
      return static_cast<double>(greedy ? id >> 24 & 1 : id & 1);
    };
  };
  testing::FakeRun undisturbed(2);
  options(undisturbed);
  REQUIRE(undisturbed.Run().ok());
  // The samples of two groups, then their greedy responses; one rollout has all four requests.
  for (const int pairs : {1, 2}) {
    for (int call = 0; call < (pairs == 1 ? 4 : 2); ++call) {
      INFO(pairs << " pairs, call " << call);
      testing::FakeRun run(pairs);
      options(run);
      run.DieAt({WorkerRole::kRollout, 0}, "Generate", call);
      REQUIRE(run.Run().ok());
      REQUIRE(run.budget.spent() == 1);
      for (int64_t step = 1; step <= 2; ++step) {
        REQUIRE(run.store.Advantages(step) == undisturbed.store.Advantages(step));
        REQUIRE(run.store.steps.at(step).metrics.at("perf/generated_tokens") ==
                undisturbed.store.steps.at(step).metrics.at("perf/generated_tokens"));
      }
    }
  }
}

}  // namespace tandem
