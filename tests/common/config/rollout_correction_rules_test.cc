#include <catch2/catch.hpp>

#include "common/config/check.h"
#include "common/config/loaded_config.h"

namespace tandem {
namespace {

constexpr const char* kSection = "algorithm.rollout_correction.";

// "actor.old_log_prob=recompute", or "rollout_is=token" for a key of the section.
LoadedConfig LoadedCorrection(std::vector<std::string> overrides) {
  for (std::string& text : overrides) {
    if (text.find('.') > text.find('=')) text = kSection + text;
  }
  overrides.insert(overrides.begin(),
                   {"model.path=/m", "data.train_files=[/t.jsonl]", "cluster.run_dir=/r"});
  const auto loaded = LoadConfig("", overrides);
  INFO(loaded.status().ToString());
  REQUIRE(loaded.ok());
  return *loaded;
}

std::string CorrectionProblem(const std::vector<std::string>& overrides) {
  LoadedConfig loaded = LoadedCorrection(overrides);
  return std::string(CheckConfigValues(loaded).message());
}

void RequireRefusal(const std::vector<std::string>& overrides,
                    const std::string& key,
                    const std::string& text) {
  const std::string problem = CorrectionProblem(overrides);
  INFO(problem);
  REQUIRE(problem.find(text) != std::string::npos);
  REQUIRE(problem.find(key + " at --set") != std::string::npos);
}

constexpr const char* kRecompute = "actor.old_log_prob=recompute";

}  // namespace

TEST_CASE("a rollout correction is valid with recomputed log-probs, or in bypass mode") {
  REQUIRE(CorrectionProblem({"rollout_is=token", kRecompute}).empty());
  REQUIRE(CorrectionProblem({"rollout_is=sequence", "rollout_is_threshold=0.5_2.0",
                             "rollout_is_batch_normalize=true", kRecompute})
              .empty());
  REQUIRE(CorrectionProblem(
              {"rollout_rs=token_k1,seq_max_k2", "rollout_rs_threshold=0.6_1.6,0.5", kRecompute})
              .empty());
}

TEST_CASE("the options are verl's, with nothing where a key is empty or null") {
  const RolloutCorrectionOptions none = RolloutCorrectionOf(LoadedCorrection({}).config);
  REQUIRE_FALSE(none.enabled());
  REQUIRE(none.rollout_is_threshold == "2.0");
  const RolloutCorrectionOptions some = RolloutCorrectionOf(
      LoadedCorrection({"rollout_is=null", "rollout_is_threshold=5", "rollout_rs=seq_mean_k3",
                        "rollout_rs_threshold=0.05", "rollout_is_batch_normalize=true"})
          .config);
  REQUIRE_FALSE(some.rollout_is.has_value());
  REQUIRE(some.rollout_is_threshold == "5");
  REQUIRE(some.rollout_is_batch_normalize);
  REQUIRE(some.rollout_rs == "seq_mean_k3");
  REQUIRE(some.rollout_rs_threshold == "0.05");
}

TEST_CASE("a rollout correction that cannot be read is refused by key") {
  RequireRefusal({kRecompute, "rollout_rs=token_k7", "rollout_rs_threshold=1"},
                 "rollout_correction.rollout_rs", "\"token_k7\" is not a rejection criterion");
  RequireRefusal({kRecompute, "rollout_rs=token_k1"}, "rollout_correction.rollout_rs",
                 "needs rollout_rs_threshold");
  RequireRefusal({kRecompute, "rollout_rs=token_k1", "rollout_rs_threshold=2_1"},
                 "rollout_correction.rollout_rs_threshold", "above the upper bound");
  RequireRefusal({kRecompute, "rollout_is=token", "rollout_is_threshold=0"},
                 "rollout_correction.rollout_is_threshold", "not above 0");
  for (const char* band : {"rollout_is_threshold=2_3", "rollout_is_threshold=0.5"}) {
    RequireRefusal({kRecompute, "rollout_is=token", band},
                   "rollout_correction.rollout_is_threshold", "the weight of fresh data");
  }
  RequireRefusal({kRecompute, "rollout_rs=token_k1", "rollout_rs_threshold=2_3"},
                 "rollout_correction.rollout_rs_threshold", "would reject fresh data");
  RequireRefusal({"rollout_rs_threshold=0.1"}, "rollout_correction.rollout_rs_threshold",
                 "rejects nothing");
  RequireRefusal({"rollout_is_batch_normalize=true"},
                 "rollout_correction.rollout_is_batch_normalize", "no weights to divide");
}

TEST_CASE("a rollout correction needs both log-probs") {
  for (const std::string key : {"rollout_is=token", "rollout_rs=token_k3"}) {
    std::vector<std::string> overrides{key, "actor.old_log_prob=rollout"};
    if (key.starts_with("rollout_rs")) overrides.push_back("rollout_rs_threshold=1");
    RequireRefusal(overrides, "actor.old_log_prob", "set actor.old_log_prob=recompute");
    overrides[1] = kRecompute;
    REQUIRE(CorrectionProblem(overrides).empty());
    overrides.push_back("rollout.calculate_log_probs=false");
    RequireRefusal(overrides, "rollout.calculate_log_probs", "one side of the comparison");
  }
}

TEST_CASE("bypass mode excludes what it would put aside") {
  RequireRefusal({"bypass_mode=true", kRecompute}, "actor.old_log_prob",
                 "set actor.old_log_prob=rollout");
  RequireRefusal({"bypass_mode=true", "rollout_is=token", "rollout_is_batch_normalize=true"},
                 "rollout_correction.bypass_mode", "depend on the packing");
  REQUIRE(CorrectionProblem({"bypass_mode=true"}).empty());
  REQUIRE(
      CorrectionProblem({"bypass_mode=true", "rollout_is=token", "loss_type=reinforce"}).empty());
  REQUIRE(CorrectionProblem(
              {"bypass_mode=true", "rollout_rs=seq_mean_k1", "rollout_rs_threshold=0.99_1.01"})
              .empty());
  RequireRefusal({"bypass_mode=true", "rollout_rs=token_k1", "rollout_rs_threshold=2_3"},
                 "rollout_rs_threshold", "would reject fresh data");
  RequireRefusal({"loss_type=reinforce"}, "rollout_correction.loss_type", "bypass_mode=true");
}

}  // namespace tandem
