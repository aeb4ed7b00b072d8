#include "controller/partial_rollout/partial_options.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <vector>

#include <catch2/catch.hpp>

#include "common/base/philox.h"
#include "common/config/loaded_config.h"

namespace tandem {
namespace {

PartialOptions PartialOptionsWith(std::vector<std::string> overrides) {
  overrides.insert(overrides.begin(), {"data.train_batch_size=8", "data.max_response_length=100"});
  const auto loaded = LoadConfig("", overrides);
  INFO(loaded.status().ToString());
  REQUIRE(loaded.ok());
  return MakePartialOptions(loaded->config);
}

const std::string kCap = "rollout.partial.max_tokens_per_round=";
const std::string kUntil = "rollout.partial.until_groups=8";
const std::string kSeconds = "rollout.partial.round_seconds=2.5";
const std::string kOverlap = "rollout.partial.overlap=true";
const std::string kRoundGroups = "rollout.partial.groups_per_round=";

}  // namespace

TEST_CASE("partial rollout is off unless a key that cuts is given", "[partial_options]") {
  REQUIRE_FALSE(PartialOptionsWith({}).enabled);
  REQUIRE_FALSE(PartialOptionsWith({kRoundGroups + "9"}).enabled);
  for (const std::string& key : {kCap + "100", kUntil, kSeconds, kOverlap}) {
    REQUIRE(PartialOptionsWith({key}).enabled);
  }
}

TEST_CASE("options say what the keys say", "[partial_options]") {
  const PartialOptions options = PartialOptionsWith(
      {kCap + "7", kUntil, kSeconds, kOverlap, kRoundGroups + "12",
       "rollout.partial.max_versions=3", "rollout.partial.max_rounds_without_batch=5",
       "rollout.partial.max_staleness=4"});
  REQUIRE(options.cap == 7);
  REQUIRE(options.until_groups == 8);
  REQUIRE(options.round_seconds == 2.5);
  REQUIRE(options.groups_per_round == 12);
  REQUIRE(options.max_versions == 3);
  REQUIRE(options.max_rounds_without_batch == 5);
  REQUIRE(options.overlap);
  REQUIRE(options.max_staleness == 4);
  REQUIRE(options.response_length == 100);
  const PartialOptions defaults = PartialOptionsWith({"algorithm.partial_rollout_max_split=3"});
  REQUIRE(defaults.cap == 34);
  REQUIRE(defaults.groups_per_round == 8);
  REQUIRE(defaults.max_versions == 8);
  REQUIRE(defaults.max_staleness == 1);
}

TEST_CASE("only cuts that the seed does not decide are journaled", "[partial_options]") {
  REQUIRE_FALSE(PartialOptionsWith({kCap + "7"}).journaled());
  for (const std::string& key : {kUntil, kSeconds, kOverlap}) {
    REQUIRE(PartialOptionsWith({kCap + "7", key}).journaled());
    REQUIRE_FALSE(PartialOptionsWith({kCap + "100", key}).cuts_nothing());
  }
  REQUIRE(PartialOptionsWith({kCap + "100"}).cuts_nothing());
  REQUIRE_FALSE(PartialOptionsWith({kCap + "99"}).cuts_nothing());
}

TEST_CASE("fresh prompts fill the rest of a round", "[partial_options]") {
  const PartialOptions capped = PartialOptionsWith({kCap + "50", kRoundGroups + "12"});
  REQUIRE(capped.FreshPrompts(0, 0) == 12);
  REQUIRE(capped.FreshPrompts(5, 7) == 7);
  REQUIRE(capped.FreshPrompts(12, 3) == 0);
  REQUIRE(capped.FreshPrompts(20, 0) == 0);
}

TEST_CASE("where nothing is cut a batch is drawn, and what earlier settings left is used up",
          "[partial_options]") {
  const PartialOptions off = PartialOptionsWith({kCap + "100"});
  REQUIRE(off.FreshPrompts(0, 0) == 8);
  REQUIRE(off.FreshPrompts(3, 2) == 3);
  REQUIRE(off.FreshPrompts(6, 6) == 0);
  REQUIRE(PartialOptionsWith({kCap + "100", kRoundGroups + "12"}).FreshPrompts(0, 4) == 4);
  REQUIRE(PartialOptionsWith({kCap + "100", kRoundGroups + "2"}).FreshPrompts(0, 0) == 2);
}

TEST_CASE("rounds without a batch: as many as the cap can need, 1000 where rounds end early",
          "[partial_options]") {
  const auto rounds = [](std::vector<std::string> keys) {
    return PartialOptionsWith(std::move(keys)).max_rounds_without_batch;
  };
  REQUIRE(rounds({kCap + "100"}) == 1);
  REQUIRE(rounds({kCap + "99"}) == 2);
  REQUIRE(rounds({kCap + "1"}) == 100);
  REQUIRE(rounds({kCap + "1", kRoundGroups + "3"}) == 300);
  REQUIRE(rounds({kCap + "1", kRoundGroups + "20"}) == 100);
  REQUIRE(rounds({kCap + "1", kUntil}) == 100);
  REQUIRE(rounds({kUntil}) == 1000);
  REQUIRE(rounds({kSeconds}) == 1000);
  REQUIRE(rounds({kCap + "50", kSeconds}) == 1000);
  REQUIRE(rounds({kCap + "1", kRoundGroups + "1", "data.max_response_length=500", kSeconds}) ==
          4000);
}

namespace {

// The most rounds that a step of 20 needs; a group is the number of tokens that its longest sample
// still needs, up to 20.
int64_t MostRounds(const PartialOptions& options, const std::function<int64_t()>& length) {
  int64_t most = 0, whole = 0;
  std::vector<int64_t> buffer;
  for (int step = 0; step < 20; ++step) {
    for (int64_t round = 1; whole < options.train_batch_size; ++round) {
      most = std::max(most, round);
      for (int64_t n = options.FreshPrompts(std::ssize(buffer), whole); n > 0; --n) {
        buffer.push_back(length());
      }
      for (int64_t g = 0; g < std::min(options.groups_per_round, std::ssize(buffer)); ++g) {
        buffer[static_cast<size_t>(g)] -= options.cap;
      }
      whole += static_cast<int64_t>(std::erase_if(buffer, [](int64_t left) { return left <= 0; }));
    }
    whole -= options.train_batch_size;
  }
  return most;
}

}  // namespace

TEST_CASE("no step needs more rounds than that, whatever the lengths, and some need as many",
          "[partial_options]") {
  for (const int64_t cap : {1, 3, 7, 20}) {
    for (const int64_t groups : {1, 3, 9, 12}) {
      for (const int64_t batch : {1, 4, 9}) {
        INFO("cap " << cap << ", " << groups << " groups, batch " << batch);
        const PartialOptions options = PartialOptionsWith(
            {kCap + std::to_string(cap), kRoundGroups + std::to_string(groups),
             "data.train_batch_size=" + std::to_string(batch), "data.max_response_length=20"});
        REQUIRE(MostRounds(options, [] { return 20; }) == options.max_rounds_without_batch);
        uint64_t at = 0;
        const auto some = [&] { return 1 + static_cast<int64_t>(RandomWords(1, 1, at++)[0] % 20); };
        REQUIRE(MostRounds(options, some) <= options.max_rounds_without_batch);
      }
    }
  }
}

}  // namespace tandem
