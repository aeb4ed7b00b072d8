#include "controller/config_options.h"

#include <catch2/catch.hpp>

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
  // The check follows the sync by itself then.
  REQUIRE(MakeCheckPolicy(Loaded("weight_sync.check_only=true")).when == When::kOff);
}

TEST_CASE("weight_sync.scramble becomes a mode", "[config_options]") {
  REQUIRE(MakeScrambleMode(Loaded("weight_sync.slots=1")) == ScrambleMode::kFirst);
  REQUIRE(MakeScrambleMode(Loaded("weight_sync.scramble=off")) == ScrambleMode::kOff);
  REQUIRE(MakeScrambleMode(Loaded("weight_sync.scramble=always")) == ScrambleMode::kAlways);
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

}  // namespace tandem
