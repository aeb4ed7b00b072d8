// The KL penalty in the reward, and the coefficient that follows the KL.
#include <catch2/catch.hpp>

#include "tests/fakes/fake_run.h"

namespace tandem {
namespace {

// Every reference log-prob is half a nat below the policy's, of which the fakes give -1 and -2.
struct KlRun : testing::FakeRun {
  explicit KlRun(bool adaptive) : FakeRun(1) {
    options.total_steps = 4;
    options.need_reference = true;
    options.kl_in_reward = true;
    options.kl_coef = 0.25;
    options.kl_control = {.adaptive = adaptive, .target = 1.0, .horizon = 16};
    journal.OnCall("trainer 0 ComputeLogProbs(step", [this] {
      for (const SampleMeta& meta : samples->Metas()) {
        for (int64_t step = 1; step <= 4; ++step) {
          (void)samples->PutArray(step, TokenArray::kReference, meta.sample_id, {-1.5f, -2.5f});
        }
      }
    });
  }
  std::string Newest() const { return loop->newest_checkpoint(); }
  double Coef(int64_t step) const {
    return store.steps.at(step).metrics.at("actor/reward_kl_penalty_coeff");
  }
  double Reward(int64_t step) const {
    return store.steps.at(step).metrics.at("critic/rewards/mean");
  }
};

// Half the target, 8 samples of a horizon of 16: by a fifth of a half each step.
double After(int64_t steps) {
  double coef = 0.25;
  for (int64_t i = 0; i < steps; ++i) coef *= 1 + -0.2 * 8 / 16;
  return coef;
}

}  // namespace

TEST_CASE("The penalty's KL is the mean over tokens, its weight is that of the step", "[kl]") {
  KlRun run(false);
  REQUIRE(run.Run().ok());
  for (int64_t step = 1; step <= 4; ++step) {
    REQUIRE(run.store.steps.at(step).metrics.at("actor/reward_kl_penalty") == 0.5);
    REQUIRE(run.Coef(step) == 0.25);
    REQUIRE(run.Reward(step) == 0.5 - 0.25 * 1.0);  // two tokens of half a nat
  }
}

TEST_CASE("An adaptive coefficient is used a step after the KL that moved it", "[kl]") {
  KlRun run(true);
  REQUIRE(run.Run().ok());
  for (int64_t step = 1; step <= 4; ++step) {
    REQUIRE(run.Coef(step) == After(step - 1));
    REQUIRE(run.Reward(step) == Approx(0.5 - After(step - 1)).epsilon(1e-12));
  }
}

TEST_CASE("Dynamic sampling leaves the KL and its coefficient to what is trained on", "[kl]") {
  KlRun run(true);
  // Rows 0, 2 and 3 have equal samples: steps of rows 1 and 4, then 5 and 6, ...
  run.options.filter_groups = {.enable = true, .metric = "right"};
  run.reward.value = [](uint64_t id) {
    const uint64_t row = id >> 24;
    return static_cast<double>(row == 0 || row == 2 || row == 3 ? 0 : id & 1);
  };
  REQUIRE(run.Run().ok());
  for (int64_t step = 1; step <= 4; ++step) {
    // Samples of the step count, 8, whatever was generated.
    REQUIRE(run.Coef(step) == After(step - 1));
    REQUIRE(run.store.steps.at(step).metrics.at("actor/reward_kl_penalty") == 0.5);
    REQUIRE(run.Reward(step) == Approx(0.5 - After(step - 1)).epsilon(1e-12));
  }
  REQUIRE(run.store.steps.at(1).metrics.at("training/filter_groups/evicted_groups") == 3);

  // In a step that is made again after its refills, as well.
  KlRun again(true);
  again.options = run.options;
  again.options.run_dir = again.dir.path();
  again.options.save_freq = 1;
  again.reward.value = run.reward.value;
  again.DieAt({WorkerRole::kTrainer, 0}, "ForwardBackward", 0);
  REQUIRE(again.Run().ok());
  for (int64_t step = 1; step <= 4; ++step) REQUIRE(again.Coef(step) == After(step - 1));
}

TEST_CASE("A resumed run goes on with the coefficient to the last bit", "[kl][recovery]") {
  KlRun run(true);
  run.options.total_steps = 2;
  REQUIRE(run.Run().ok());
  run.options.total_steps = 4;
  REQUIRE(run.Run(run.Newest()).ok());
  REQUIRE(run.Coef(3) == After(2));
  REQUIRE(run.Coef(4) == After(3));
}

TEST_CASE("A fixed coefficient is the configuration's, whatever a checkpoint says", "[kl]") {
  KlRun run(true);
  run.options.total_steps = 2;
  REQUIRE(run.Run().ok());
  run.options.total_steps = 3;
  run.options.kl_control.adaptive = false;
  run.options.kl_coef = 0.125;
  REQUIRE(run.Run(run.Newest()).ok());
  REQUIRE(run.Coef(3) == 0.125);
  // And from there an adaptive one begins with the configuration's as well.
  run.options.total_steps = 4;
  run.options.kl_control.adaptive = true;
  run.options.kl_coef = 0.5;
  REQUIRE(run.Run(run.Newest()).ok());
  REQUIRE(run.Coef(4) == 0.5);
}

TEST_CASE("A step that is made again moves the coefficient once", "[kl][recovery]") {
  // In step 2: before the weights change, and after.
  for (const auto& [method, calls] :
       {std::pair{"ForwardBackward", 1}, std::pair{"SyncWeights", 2}}) {
    INFO(method);
    KlRun run(true);
    run.options.save_freq = 1;
    run.DieAt({WorkerRole::kTrainer, 0}, method, calls);
    REQUIRE(run.Run().ok());
    for (int64_t step = 1; step <= 4; ++step) REQUIRE(run.Coef(step) == After(step - 1));
  }
}

}  // namespace tandem
