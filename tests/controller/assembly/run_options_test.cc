#include "controller/assembly/run_options.h"

#include <catch2/catch.hpp>

#include "common/config/loaded_config.h"

namespace tandem {
namespace {

v1::WeightSync Loaded(const std::string& override) {
  const auto loaded = LoadConfig("", {override});
  REQUIRE(loaded.ok());
  return loaded->config.weight_sync();
}

CheckPolicy Check(const std::string& value) {
  return MakeCheckPolicy(Loaded("weight_sync.check=" + value));
}

}  // namespace

TEST_CASE("weight_sync.check becomes a policy", "[config_options]") {
  using When = CheckPolicy::When;
  REQUIRE(Check("off").when == When::kOff);
  REQUIRE(Check("false").when == When::kOff);
  REQUIRE(Check("first").when == When::kFirst);
  REQUIRE(Check("true").when == When::kFirst);
  REQUIRE(Check("always").when == When::kAlways);
  REQUIRE(Check("every 1").when == When::kEvery);
  REQUIRE(Check("every 250").every == 250);
}

TEST_CASE("weight_sync.scramble becomes a mode", "[config_options]") {
  REQUIRE(MakeScrambleMode(Loaded("weight_sync.slots=1")) == ScrambleMode::kFirst);
  REQUIRE(MakeScrambleMode(Loaded("weight_sync.scramble=off")) == ScrambleMode::kOff);
  REQUIRE(MakeScrambleMode(Loaded("weight_sync.scramble=always")) == ScrambleMode::kAlways);
}

TEST_CASE("A run without rounds predicts what two caps would save", "[config_options]") {
  const auto options = [](std::vector<std::string> overrides) {
    overrides.insert(overrides.end(), {"data.max_response_length=101", "rollout.max_num_seqs=48",
                                       "cluster.trainers=3", "cluster.rollouts=3"});
    const auto loaded = LoadConfig("", overrides);
    REQUIRE(loaded.ok());
    return MakeTrainOptions(loaded->config, {2}, 1000).tail;
  };
  const TailOptions off = options({});
  REQUIRE(off.slots == 144);
  REQUIRE(off.caps.size() == 2);
  REQUIRE(off.caps[0].name == "split_2");
  REQUIRE(off.caps[0].tokens == 51);
  REQUIRE(off.caps[1].name == "split_4");
  REQUIRE(off.caps[1].tokens == 26);
  for (const char* cut :
       {"rollout.partial.max_tokens_per_round=7", "algorithm.partial_rollout_max_split=3"}) {
    REQUIRE(options({cut}).caps.empty());
  }
}

TEST_CASE("A run's time reaches the train loop", "[config_options]") {
  v1::Config config = DefaultConfig();
  REQUIRE_FALSE(MakeTrainOptions(config, {}, 100).limit.enabled());
  config.mutable_trainer()->set_max_seconds(300);
  config.mutable_trainer()->set_min_training_steps(8);
  const TrainOptions options = MakeTrainOptions(config, {}, 100);
  REQUIRE(options.limit.time == absl::Seconds(300));
  REQUIRE(options.limit.fewest == 8);
}

TEST_CASE("algorithm.filter_groups reaches the train loop", "[config_options]") {
  const auto loaded =
      LoadConfig("", {"algorithm.filter_groups.enable=true", "algorithm.filter_groups.metric=acc",
                      "algorithm.filter_groups.max_num_gen_batches=7"});
  REQUIRE(loaded.ok());
  const GroupFilterOptions filter = MakeTrainOptions(loaded->config, {}, 100).filter_groups;
  REQUIRE(filter.enable);
  REQUIRE(filter.metric == "acc");
  REQUIRE(filter.max_batches == 7);
  REQUIRE_FALSE(MakeTrainOptions(DefaultConfig(), {}, 100).filter_groups.enable);
}

TEST_CASE("A schedule spans the optimizer steps of the run unless it is told", "[config_options]") {
  const auto filled = [](const std::vector<std::string>& overrides) {
    const v1::Config config = LoadConfig("", overrides).value().config;
    const TrainOptions options = MakeTrainOptions(config, {}, 100);
    return ConfigForWorkers(config, options).actor().optim().total_training_steps();
  };
  const std::string batch = "data.train_batch_size=10";
  // Ten steps a pass, two passes; two mini-batches a step, three times over.
  REQUIRE(filled({batch, "trainer.total_epochs=2"}) == 20);
  REQUIRE(filled({batch, "trainer.total_epochs=2", "actor.ppo_mini_batch_size=5",
                  "actor.ppo_epochs=3"}) == 120);
  REQUIRE(filled({batch, "trainer.total_training_steps=7"}) == 7);
  REQUIRE(filled({batch, "actor.optim.total_training_steps=33"}) == 33);
  REQUIRE(filled({"trainer.total_training_steps=1000000000", "actor.ppo_epochs=1000000",
                  "data.train_batch_size=1048576", "actor.ppo_mini_batch_size=1"}) ==
          1000000000000000);
}

TEST_CASE("A pass of its own compares log-probs where a mini-batch is a part of the batch",
          "[config_options]") {
  const std::string batch = "data.train_batch_size=8", part = "actor.ppo_mini_batch_size=4";
  const auto config = [](const std::vector<std::string>& overrides) {
    return LoadConfig("", overrides).value().config;
  };
  REQUIRE(HasComparePass(config({batch, part})));
  REQUIRE_FALSE(HasComparePass(config({batch})));
  REQUIRE_FALSE(HasComparePass(config({batch, "actor.ppo_mini_batch_size=8"})));
  REQUIRE_FALSE(HasComparePass(config({batch, part, "actor.old_log_prob=recompute"})));
  REQUIRE_FALSE(HasComparePass(config({batch, part, "rollout.calculate_log_probs=false"})));
  const v1::Config without = config({batch, part, "actor.compare_all_log_probs=false"});
  REQUIRE_FALSE(HasComparePass(without));
  REQUIRE_FALSE(MakeTrainOptions(without, {}, 100).compare_all_log_probs);
  // One step off there is always one, of the next batch.
  const std::string apart = "cluster.hybrid_engine=false", ahead = "trainer.off_policy_steps=1";
  REQUIRE(HasComparePass(config({batch, apart, ahead})));
  REQUIRE(HasComparePass(config({batch, apart, ahead, "actor.old_log_prob=recompute"})));
  REQUIRE(HasComparePass(config({batch, part, apart, ahead, "actor.compare_all_log_probs=false"})));
  REQUIRE_FALSE(HasComparePass(config({batch, apart, ahead, "rollout.calculate_log_probs=false"})));
  REQUIRE(MakeTrainOptions(config({}), {}, 100).compare_all_log_probs);
}

TEST_CASE("KL control, skipped updates and saved batches follow their keys", "[config_options]") {
  const auto made = [](const std::vector<std::string>& overrides) {
    return MakeTrainOptions(LoadConfig("", overrides).value().config, {}, 100);
  };
  const TrainOptions defaults = made({});
  REQUIRE_FALSE(defaults.kl_control.adaptive);
  REQUIRE(defaults.kl_coef == 0.001);
  REQUIRE(defaults.max_skipped_steps == 3);
  REQUIRE(defaults.save_batch_freq == -1);
  const TrainOptions options =
      made({"algorithm.kl_ctrl.type=adaptive", "algorithm.kl_ctrl.kl_coef=0.5",
            "algorithm.kl_ctrl.horizon=64", "algorithm.kl_ctrl.target_kl=0.25",
            "actor.max_skipped_steps=0", "trainer.save_batch_freq=4"});
  REQUIRE(options.kl_control.adaptive);
  REQUIRE(options.kl_coef == 0.5);
  REQUIRE(options.kl_control.horizon == 64);
  REQUIRE(options.kl_control.target == 0.25);
  REQUIRE(options.max_skipped_steps == 0);
  REQUIRE(options.save_batch_freq == 4);
}

TEST_CASE("the advantage estimator gets its keys", "[config_options]") {
  const auto made = [](const std::vector<std::string>& overrides) {
    return MakeTrainOptions(LoadConfig("", overrides).value().config, {}, 100);
  };
  const TrainOptions defaults = made({});
  REQUIRE(defaults.adv_estimator == "grpo");
  REQUIRE(defaults.advantage.by_std);
  REQUIRE(defaults.advantage.gamma == 1);
  REQUIRE(defaults.advantage.component_weights.empty());
  const TrainOptions options = made(
      {"algorithm.adv_estimator=gdpo", "algorithm.norm_adv_by_std_in_grpo=false",
       "algorithm.gamma=0.5", "algorithm.lam=0.25", "algorithm.gdpo_reward_keys=[score, format]",
       "algorithm.gdpo_reward_weights=[1, 0.5]"});
  REQUIRE(options.adv_estimator == "gdpo");
  REQUIRE_FALSE(options.advantage.by_std);
  REQUIRE(options.advantage.gamma == 0.5);
  REQUIRE(options.gdpo_reward_keys == std::vector<std::string>{"score", "format"});
  REQUIRE(options.advantage.component_weights == std::vector<double>{1, 0.5});
}

}  // namespace tandem
