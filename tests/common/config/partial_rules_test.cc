#include <catch2/catch.hpp>

#include "common/config/loaded_config.h"
#include "common/config/rollout_rules.h"

namespace tandem {
namespace {

LoadedConfig LoadedPartial(std::vector<std::string> overrides) {
  overrides.insert(overrides.begin(),
                   {"model.path=/m", "data.train_files=[/t.jsonl]", "cluster.run_dir=/r",
                    "data.train_batch_size=8", "data.max_response_length=100"});
  const auto loaded = LoadConfig("", overrides);
  INFO(loaded.status().ToString());
  REQUIRE(loaded.ok());
  return *loaded;
}

std::string PartialProblem(const std::vector<std::string>& overrides) {
  LoadedConfig loaded = LoadedPartial(overrides);
  return std::string(CheckConfigValues(loaded).message());
}

void RequireRefused(const std::vector<std::string>& overrides, const std::string& text) {
  const std::string problem = PartialProblem(overrides);
  INFO(problem);
  REQUIRE(problem.find(text) != std::string::npos);
  REQUIRE(problem.find('\n') == std::string::npos);
}

const std::string kCap = "rollout.partial.max_tokens_per_round=";
const std::string kSplit = "algorithm.partial_rollout_max_split=";
const std::string kUntil = "rollout.partial.until_groups=";
const std::string kGroups = "rollout.partial.groups_per_round=";

}  // namespace

TEST_CASE("a split is a cap on the tokens of a round, rounded up") {
  const auto cap = [](const std::string& key) { return PartialCap(LoadedPartial({key}).config); };
  REQUIRE(cap(kSplit + "0") == 0);
  REQUIRE(cap(kSplit + "1") == 100);
  REQUIRE(cap(kSplit + "2") == 50);
  REQUIRE(cap(kSplit + "3") == 34);
  REQUIRE(cap(kSplit + "100") == 1);
  REQUIRE(cap(kSplit + "2147483648") == 1);
  REQUIRE(cap(kCap + "70") == 70);
  REQUIRE(cap(kCap + "1000") == 1000);
}

TEST_CASE("each of the keys that cut asks for partial rollout, and no other") {
  for (const std::string& key :
       {kCap + "1", kSplit + "1", kUntil + "8", std::string("rollout.partial.round_seconds=0.001"),
        std::string("rollout.partial.overlap=true")}) {
    INFO(key);
    REQUIRE(PartialEnabled(LoadedPartial({key}).config));
  }
  REQUIRE_FALSE(PartialEnabled(
      LoadedPartial({kGroups + "16", "rollout.partial.max_versions=2", kCap + "0"}).config));
}

TEST_CASE("a cap below 1 is refused where it is read") {
  for (const std::string& key : {kCap + "-1", kSplit + "-1", kUntil + "-2"}) {
    const auto loaded = LoadConfig("", {key});
    INFO(loaded.status().ToString());
    REQUIRE(absl::IsInvalidArgument(loaded.status()));
    REQUIRE(loaded.status().message().find("is out of range") != std::string::npos);
  }
  REQUIRE(PartialProblem({kCap + "1"}).empty());
}

TEST_CASE("a cap and its alias together are refused, equal or not") {
  RequireRefused({kCap + "50", kSplit + "2"}, "leave one of them out");
  RequireRefused({kCap + "7", kSplit + "2"}, "rollout.partial.max_tokens_per_round=7");
  REQUIRE(PartialProblem({kCap + "0", kSplit + "2"}).empty());
  REQUIRE(PartialProblem({kCap + "50", kSplit + "0"}).empty());
}

TEST_CASE("a round cannot wait for more groups than it has, nor for less than a batch") {
  RequireRefused({kUntil + "9"}, "a round has, data.train_batch_size=8");
  RequireRefused({kUntil + "13", kGroups + "12"}, "rollout.partial.groups_per_round=12");
  REQUIRE(PartialProblem({kUntil + "8"}).empty());
  REQUIRE(PartialProblem({kUntil + "12", kGroups + "12"}).empty());
  RequireRefused({kUntil + "7", kGroups + "12"}, "no step could train");
  // Both at once where a round is smaller than a batch.
  REQUIRE(PartialProblem({kUntil + "5", kGroups + "4"}).find('\n') != std::string::npos);
}

TEST_CASE("rounds smaller than a batch are fine where several make one") {
  for (const std::string& cut : {kCap + "10", std::string("rollout.partial.round_seconds=5")}) {
    REQUIRE(PartialProblem({kGroups + "1", cut}).empty());
  }
}

TEST_CASE("overlap needs rollouts whose KV cache stays") {
  const std::string overlap = "rollout.partial.overlap=true";
  RequireRefused({overlap}, "rollout.free_cache_engine=auto may take the KV cache away");
  RequireRefused({overlap}, "as each shares its device with a trainer; set it to false");
  RequireRefused({overlap, "rollout.free_cache_engine=true"}, "set it to false");
  REQUIRE(PartialProblem({overlap, "rollout.free_cache_engine=false"}).empty());
}

TEST_CASE("log-probs of the rollouts are needed with partial rollout as without") {
  const std::string none = "rollout.calculate_log_probs=false";
  RequireRefused({kCap + "10", none}, "actor.old_log_prob=recompute");
  REQUIRE(PartialProblem({kCap + "10", none, "actor.old_log_prob=recompute"}).empty());
}

}  // namespace tandem
