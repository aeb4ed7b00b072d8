// The rules about the configuration that belong to the advantage estimators.
#include <array>

#include <catch2/catch.hpp>

#include "common/config/check.h"
#include "common/config/loaded_config.h"
#include "controller/algorithm/advantage_estimator.h"

namespace tandem {
namespace {

struct EstimatorCheck {
  std::string problem;
  std::vector<std::string> notices;
};

EstimatorCheck Checked(std::vector<std::string> overrides) {
  overrides.insert(overrides.begin(),
                   {"model.path=/m", "data.train_files=[/t.jsonl]", "cluster.run_dir=/r"});
  auto loaded = LoadConfig("", overrides);
  INFO(loaded.status().ToString());
  REQUIRE(loaded.ok());
  const absl::Status status =
      CheckConfigValues(*loaded, std::array<ConfigCheck, 1>{CheckAdvantageEstimator});
  return {std::string(status.message()), loaded->notices};
}

TEST_CASE("an advantage estimator refuses what it would ignore") {
  const auto with = [](const std::string& name, std::vector<std::string> more) {
    more.push_back("algorithm.adv_estimator=" + name);
    return Checked(more).problem;
  };
  REQUIRE(with("grpo", {"algorithm.gamma=0.9"}).find("grpo does not discount: set it to 1") !=
          std::string::npos);
  REQUIRE(with("rloo", {"algorithm.lam=0.9"}).find("rloo does not bootstrap") != std::string::npos);
  REQUIRE(with("reinforce_plus_plus", {"algorithm.gamma=0.9"}).empty());
  REQUIRE(with("reinforce_plus_plus", {"algorithm.lam=0.9"}).find("does not bootstrap") !=
          std::string::npos);
  REQUIRE(with("reinforce_plus_plus", {"rollout.n=1"}).empty());
}

TEST_CASE("one sample a prompt is refused where its advantage teaches nothing, else noted") {
  const auto alone = [](const std::string& name) {
    return std::vector<std::string>{"rollout.n=1", "algorithm.adv_estimator=" + name,
                                    "actor.old_log_prob=recompute"};
  };
  for (const std::string name : {"grpo_passk", "rloo_vectorized"}) {
    const std::string problem = Checked(alone(name)).problem;
    INFO(problem);
    REQUIRE(problem.find("rollout.n is 1: " + name + " compares the samples of a prompt, and ") ==
            0);
    REQUIRE(problem.find("nothing could be learned") != std::string::npos);
    REQUIRE(problem.find("(rollout.n at --set") != std::string::npos);
    REQUIRE(Checked(alone(name)).notices.empty());
  }
  for (const std::string name :
       {"grpo", "grpo_vectorized", "rloo", "reinforce_plus_plus_baseline", "opo", "gpg",
        "optimal_token_baseline", "tir_optimal_token_baseline"}) {
    INFO(name);
    REQUIRE(Checked(alone(name)).problem == "");
    const auto notices = Checked(alone(name)).notices;
    REQUIRE(notices.size() == 1);
    REQUIRE(notices[0].find("--set: rollout.n is 1: " + name + " has no other samples") == 0);
  }
  for (const std::string name : {"reinforce_plus_plus", "remax"}) {
    INFO(name);
    REQUIRE(Checked(alone(name)).problem == "");
    REQUIRE(Checked(alone(name)).notices.empty());
  }
  REQUIRE(Checked({"rollout.n=2"}).notices.empty());
}

TEST_CASE("advantage estimators that lack an input are refused with the names that work") {
  const std::string problem = Checked({"algorithm.adv_estimator=gae"}).problem;
  REQUIRE(problem.find("algorithm.adv_estimator=gae needs") == 0);
  REQUIRE(problem.find("there is no critic yet") != std::string::npos);
  REQUIRE(problem.find("runs can use gdpo, gpg, grpo, grpo_vectorized") != std::string::npos);
  REQUIRE(Checked({"algorithm.adv_estimator=remax", "rollout.n=1"}).problem.empty());
  REQUIRE(Has(Checked({"algorithm.adv_estimator=remax", "cluster.hybrid_engine=false",
                       "trainer.off_policy_steps=1"})
                  .problem,
              "or leave these keys out"));
  for (const std::string name : {"optimal_token_baseline", "tir_optimal_token_baseline"}) {
    const std::string estimator = "algorithm.adv_estimator=" + name;
    REQUIRE(Checked({estimator}).problem.find("recompute: set it") != std::string::npos);
    REQUIRE(Checked({estimator, "actor.old_log_prob=recompute"}).problem.empty());
  }
}

TEST_CASE("gdpo needs its reward keys, each once and with as many weights") {
  const auto gdpo = [](std::vector<std::string> more) {
    more.push_back("algorithm.adv_estimator=gdpo");
    return Checked(more).problem;
  };
  REQUIRE(gdpo({}).find("gdpo needs algorithm.gdpo_reward_keys") != std::string::npos);
  const std::string keys = "algorithm.gdpo_reward_keys=[score, format]";
  REQUIRE(gdpo({keys}).empty());
  REQUIRE(gdpo({keys, "algorithm.gdpo_reward_weights=[1, 0.5]"}).empty());
  REQUIRE(gdpo({keys, "algorithm.gdpo_reward_weights=[1]"}).find("has 1 numbers for 2") !=
          std::string::npos);
  REQUIRE(gdpo({"algorithm.gdpo_reward_keys=[score, score]"}).find("names a key twice") !=
          std::string::npos);
  REQUIRE(gdpo({keys, "algorithm.use_kl_in_reward=true"}).find("use_kl_loss") != std::string::npos);
  REQUIRE(Checked({keys}).problem.find("are for gdpo, and algorithm.adv_estimator is grpo") !=
          std::string::npos);
  REQUIRE(Checked({"algorithm.gdpo_reward_weights=[1]"}).problem.find("leave them out") !=
          std::string::npos);
}

TEST_CASE("remax has no baseline of samples of several weight versions") {
  const std::string remax = "algorithm.adv_estimator=remax";
  const std::vector<std::string> sizes = {"data.train_batch_size=8",
                                          "data.max_response_length=100"};
  REQUIRE(Checked({remax, sizes[0], sizes[1]}).problem.empty());
  for (const std::string cut :
       {"rollout.partial.max_tokens_per_round=10", "algorithm.partial_rollout_max_split=2",
        "rollout.partial.until_groups=8"}) {
    const std::string problem = Checked({remax, sizes[0], sizes[1], cut}).problem;
    INFO(problem);
    REQUIRE(problem.find("such as rloo") != std::string::npos);
    REQUIRE(problem.find('\n') == std::string::npos);
  }
}

}  // namespace
}  // namespace tandem
