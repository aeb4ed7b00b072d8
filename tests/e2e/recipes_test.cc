// Every recipe of configs/recipes, as real processes: three steps of a small model with the
// recipe's own algorithm, and --dry-run. The sizes are the rig's.
#include <algorithm>
#include <filesystem>
#include <set>

#include <catch2/catch.hpp>

#include "tests/e2e/recovery.h"

namespace tandem::testing {
namespace {

const std::filesystem::path kRecipes = std::filesystem::absolute("configs/recipes");

std::vector<std::string> Recipes(const std::string& base) {
  std::vector<std::string> recipes;
  for (const auto& entry : std::filesystem::directory_iterator(kRecipes)) {
    if (entry.path().filename().string().starts_with(base)) recipes.push_back(entry.path());
  }
  std::sort(recipes.begin(), recipes.end());
  REQUIRE(recipes.size() == 7);
  return recipes;
}

// What a recipe's base says of models, data and machines that are not here.
RigOptions Sized(const std::string& recipe, const TinyModelOptions& model) {
  RigOptions options{.model = model};
  options.config = {{"base", recipe},
                    {"data.val_files", "[]"},
                    {"data.apply_chat_template_kwargs", "null"},
                    {"trainer.test_freq", "-1"},
                    {"trainer.expected_val_rise", "0"},
                    // A random model is never right: groups differ in the rig's own term.
                    {"algorithm.filter_groups.metric", "seq_reward"},
                    {"cluster.trainers", "1"},
                    {"cluster.rollouts", "1"}};
  if (recipe.find("dapo") != std::string::npos) options.config["reward.overlong_buffer.len"] = "1";
  // Four prompts a step: two optimizer steps where the recipe has more than one.
  if (recipe.find("gspo") != std::string::npos || recipe.find("cispo") != std::string::npos) {
    options.config["actor.ppo_mini_batch_size"] = "2";
  } else {
    options.config["actor.ppo_mini_batch_size"] = "4";
  }
  return options;
}

// What only a run of this recipe logs; "" where nothing is its alone.
std::string OwnMetric(const std::string& recipe) {
  static const std::map<std::string, std::string> kOwn = {
      {"_grpo", "actor/kl_loss"},
      {"_dapo", "training/filter_groups/num_gen_batches"},
      {"_rloo", "actor/reward_kl_penalty"},
      {"_reinforce_plus_plus", "actor/kl_loss"}};
  const std::string name = std::filesystem::path(recipe).stem();
  for (const auto& [suffix, metric] : kOwn) {
    if (name.ends_with(suffix) && !name.ends_with("dr_grpo")) return metric;
  }
  return "";
}

// The weights it ends with.
std::string TrainThreeSteps(const std::string& recipe, const TinyModelOptions& model) {
  INFO(recipe);
  ClusterRig rig(Sized(recipe, model));
  const int code = rig.Launch().Wait();
  INFO(rig.Log("launcher"));
  REQUIRE(code == 0);
  const Outcome outcome = OutcomeOf(rig, 3);
  RequireLearned(outcome, 3);
  // On the first mini-batch the ratio of every token is exactly 1; a step of one has no other.
  const bool one_update =
      recipe.find("gspo") == std::string::npos && recipe.find("cispo") == std::string::npos;
  const std::string own = OwnMetric(recipe);
  for (const auto& [step, metrics] : outcome.metrics) {
    INFO("step " << step);
    if (!own.empty()) REQUIRE(metrics.contains(own));
    REQUIRE(metrics.at("actor/first_ratio_min") == 1.0);
    REQUIRE(metrics.at("actor/first_ratio_mean") == 1.0);
    REQUIRE(metrics.at("actor/first_ratio_max") == 1.0);
    REQUIRE(metrics.at("actor/first_pg_clipfrac") == 0.0);
    if (one_update) {
      REQUIRE(metrics.at("actor/ratio_min") == 1.0);
      REQUIRE(metrics.at("actor/ratio_mean") == 1.0);
      REQUIRE(metrics.at("actor/ratio_max") == 1.0);
      REQUIRE(metrics.at("actor/pg_clipfrac") == 0.0);
    }
  }
  REQUIRE(rig.LeftBehind() == "");
  return outcome.weights;
}

TEST_CASE("the quickstart's recipes run three real steps") {
  std::set<std::string> ends;
  for (const std::string& recipe : Recipes("quickstart_")) ends.insert(TrainThreeSteps(recipe, {}));
  REQUIRE(ends.size() == 7);  // no two do the same
}

TEST_CASE(
    "the recipes for a 0.6B model are checked without a start, and train two layers of Qwen3") {
  const TinyModelOptions qwen{.model_type = "qwen3", .num_layers = 2};
  std::set<std::string> ends;
  for (const std::string& recipe : Recipes("gsm8k_0.6b_")) {
    INFO(recipe);
    {
      ClusterRig rig(Sized(recipe, qwen));
      const int code = rig.Launch({"--dry-run"}).Wait();
      const std::string said = rig.Log("launcher");
      INFO(said);
      REQUIRE(code == 0);
      REQUIRE(said.find("prompts to train on") != std::string::npos);
      REQUIRE(said.find("memory plan of a pair: ") != std::string::npos);
      REQUIRE(said.find("nothing was started") != std::string::npos);
      REQUIRE_FALSE(rig.HasRunFile("run.db"));
    }
    ends.insert(TrainThreeSteps(recipe, qwen));
  }
  REQUIRE(ends.size() == 7);
}

TEST_CASE("a dry run refuses data that is not there, as a launch does") {
  RigOptions options = Sized(kRecipes / "gsm8k_0.6b_grpo.yaml", {.model_type = "qwen3"});
  ClusterRig rig(options);
  rig.Set("data.train_files", "nowhere.jsonl");
  REQUIRE(rig.Launch({"--dry-run"}).Wait() != 0);
  REQUIRE(rig.Log("launcher").find("nowhere.jsonl") != std::string::npos);
}

}  // namespace
}  // namespace tandem::testing
