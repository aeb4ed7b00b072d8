#include "controller/step/summary/group_metrics.h"

#include <cmath>

#include <catch2/catch.hpp>

using namespace tandem;  // NOLINT(google-build-using-namespace)

namespace {

struct Samples {
  std::vector<SampleMeta> metas;
  std::vector<SampleRecord> records;

  // One sample; its id is its place.
  void Add(int64_t group, double reward, std::map<std::string, double> terms = {}) {
    SampleMeta meta{.sample_id = metas.size(), .group = group};
    meta.outcome.reward = reward;
    metas.push_back(meta);
    records.push_back({.sample_id = records.size(),
                       .group = group,
                       .reward = reward,
                       .reward_terms = std::move(terms)});
  }
};

std::vector<uint64_t> Shown(const Samples& samples) {
  std::vector<uint64_t> ids;
  for (const SampleRecord& sample : ContrastingSamples(samples.records)) {
    ids.push_back(sample.sample_id);
  }
  return ids;
}

}  // namespace

TEST_CASE("Groups are counted by what their rewards say", "[step_metrics]") {
  Samples samples;
  for (const double reward : {0.0, 1.0}) samples.Add(0, reward);
  for (const double reward : {1.0, 1.0}) samples.Add(1, reward);
  for (const double reward : {0.0, 0.0}) samples.Add(2, reward);
  for (const double reward : {0.5, 0.5}) samples.Add(3, reward);
  // Terms change the reward: acc says which response is right.
  for (const double reward : {0.1, 0.1}) samples.Add(4, reward, {{"acc", 0}});
  for (const double reward : {1.1, 1.1}) samples.Add(5, reward, {{"acc", 1}});
  const auto metrics = GroupMetrics(samples.metas, samples.records);
  REQUIRE(metrics.at(kGroups) == 6);
  REQUIRE(metrics.at(kGroupsMixed) == 1);
  REQUIRE(metrics.at(kGroupsRight) == 2);
  REQUIRE(metrics.at(kGroupsWrong) == 2);
  REQUIRE(metrics.at(kGroupsEqual) == 1);
  REQUIRE(metrics.at(kZeroStdRatio) == Approx(5.0 / 6));
  REQUIRE(metrics.at(kTrainedSamples) == 12);
}

TEST_CASE("The interval of the reward takes prompts as independent", "[step_metrics]") {
  Samples samples;
  for (const double reward : {0.0, 1.0}) samples.Add(0, reward);  // mean 0.5
  for (const double reward : {1.0, 1.0}) samples.Add(1, reward);  // mean 1
  const auto metrics = GroupMetrics(samples.metas, samples.records);
  REQUIRE(metrics.at(kRewardStd) == Approx(0.5));
  REQUIRE(metrics.at(kRewardInterval) == Approx(1.96 * std::sqrt(0.125) / std::sqrt(2.0)));
}

TEST_CASE("A spread that needs a second sample or prompt is left out", "[step_metrics]") {
  Samples samples;
  samples.Add(0, 1);
  auto metrics = GroupMetrics(samples.metas, samples.records);
  REQUIRE_FALSE(metrics.contains(kRewardStd));
  REQUIRE_FALSE(metrics.contains(kRewardInterval));
  samples.Add(0, 0);
  metrics = GroupMetrics(samples.metas, samples.records);
  REQUIRE(metrics.contains(kRewardStd));
  REQUIRE_FALSE(metrics.contains(kRewardInterval));
  REQUIRE(GroupMetrics({}, {}) == std::map<std::string, double>{{kTrainedSamples, 0}});
}

TEST_CASE("Groups are recorded in order, with a spread of exactly 0 where all rewards are equal",
          "[step_metrics]") {
  Samples samples;
  for (const double reward : {0.1, 0.1, 0.1}) samples.Add(7, reward);
  for (const double reward : {1.0, 0.0}) samples.Add(3, reward);
  const std::vector<GroupRecord> groups = GroupsOf(samples.records);
  REQUIRE(groups.size() == 2);
  REQUIRE(groups[0].group == 3);
  REQUIRE(groups[0].samples == 2);
  REQUIRE(groups[0].kind == GroupKind::kMixed);
  REQUIRE(groups[0].reward_mean == 0.5);
  REQUIRE(groups[0].reward_std == Approx(std::sqrt(0.5)));
  REQUIRE(groups[1].kind == GroupKind::kAllEqual);
  REQUIRE(groups[1].reward_std == 0);
  REQUIRE(GroupsOf({}).empty());
}

TEST_CASE("The samples that are shown contrast in the group of the widest range",
          "[step_metrics]") {
  Samples samples;
  REQUIRE(Shown(samples).empty());
  for (const double reward : {0.5, 0.5}) samples.Add(0, reward);
  REQUIRE(Shown(samples) == std::vector<uint64_t>{0});  // all are equal
  for (const double reward : {0.0, 0.0}) samples.Add(1, reward);
  REQUIRE(Shown(samples) == std::vector<uint64_t>{0, 2});  // no group is mixed
  for (const double reward : {0.2, 0.4}) samples.Add(2, reward);
  REQUIRE(Shown(samples) == std::vector<uint64_t>{5, 4});
  for (const double reward : {1.0, 0.0, 1.0, 0.0}) samples.Add(3, reward);
  for (const double reward : {1.0, 0.0}) samples.Add(4, reward);
  REQUIRE(Shown(samples) == std::vector<uint64_t>{6, 7});  // the first of equal ones
}

TEST_CASE("The load of a step is that of the fullest rollout under its weights", "[step_metrics]") {
  const GeneratorLoad one{
      .kv_blocks = 10, .peak_version = 3, .peak_waiting = 1, .peak_kv_blocks_used = 4};
  const GeneratorLoad two{
      .kv_blocks = 10, .peak_version = 3, .peak_waiting = 0, .peak_kv_blocks_used = 9};
  StepDetails details;
  AddGenerationLoad({one, two}, 3, details);
  REQUIRE(details.kv_share == 0.9);
  REQUIRE(details.waiting == 1);
  for (const std::vector<std::optional<GeneratorLoad>>& late :
       std::vector<std::vector<std::optional<GeneratorLoad>>>{{}, {one, std::nullopt}}) {
    StepDetails none;
    AddGenerationLoad(late, 3, none);
    REQUIRE_FALSE(none.kv_share.has_value());
  }
  StepDetails older;
  AddGenerationLoad({one, two}, 4, older);
  REQUIRE_FALSE(older.waiting.has_value());
}

TEST_CASE("The prompts that are shown begin at the first line in which they differ",
          "[step_metrics]") {
  const auto shown = [](const std::vector<std::string>& prompts) {
    std::vector<SampleRecord> records;
    for (const std::string& prompt : prompts) {
      records.push_back({.group = std::ssize(records), .prompt = prompt});
    }
    return ContrastingSamples(records).front().prompt;
  };
  REQUIRE(shown({"system\nWhat is 1?", "system\nWhat is 2?"}) == "What is 1?");
  REQUIRE(shown({"system\n\nWhat is 1?", "system\n"}) == "\nWhat is 1?");
  REQUIRE(shown({"What is 1?", "What is 2?"}) == "What is 1?");
  REQUIRE(shown({"system\nWhat?", "system\nWhat?"}) == "system\nWhat?");
  REQUIRE(shown({"", "a"}).empty());
}
