// Greedy baselines inside a step.
#include <catch2/catch.hpp>

#include "controller/train_loop.h"
#include "tests/fakes/fake_run.h"

namespace tandem {
namespace {

std::vector<double> Advantages(const testing::MemoryRunStore& store, int64_t step) {
  std::vector<double> values;
  for (const SampleRecord& sample : store.samples.at(step)) values.push_back(sample.advantage);
  return values;
}

}  // namespace

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
  REQUIRE(Advantages(run.store, 1) == std::vector<double>{0, 1, 0, 1, 0, 1, 0, 1});
}

}  // namespace tandem
