#include "controller/step/greedy_baselines.h"

#include <catch2/catch.hpp>

#include "tests/fakes/fake_run.h"

namespace tandem {
namespace {

Prompt MakePrompt(uint64_t row) {
  return {.data_row = row, .tokens = {1, 2}, .data_source = "fake", .ground_truth = "truth"};
}

Sample Answer(uint64_t id) {
  return {.sample_id = id, .tokens = {1, 2, 7, 8, 9}, .prompt_tokens = 2};
}

// The score is the data row, and what it was asked is kept.
class RowReward : public RewardFunction {
 public:
  absl::StatusOr<std::vector<RewardScore>> Score(const std::vector<RewardItem>& items) override {
    std::vector<RewardScore> scores;
    for (const RewardItem& item : items) {
      scores.push_back({.score = static_cast<double>(item.sample_id >> 24)});
    }
    asked = items;
    return scores;
  }
  std::vector<RewardItem> asked;
};

}  // namespace

TEST_CASE("a greedy baseline is asked for without randomness, one per prompt") {
  GreedyBaselines baselines;
  SamplingParams sampling{.temperature = 0.7f, .top_p = 0.9f, .top_k = 5, .max_tokens = 33};
  sampling.stop = {"end"};
  const auto requests = baselines.Ask(4, 11, {MakePrompt(5), MakePrompt(6)}, 8, sampling);
  REQUIRE(requests.size() == 2);
  REQUIRE(requests[1].group == 9);
  REQUIRE(requests[1].version == 11);
  REQUIRE(requests[1].params.temperature == 0);
  REQUIRE_FALSE(requests[1].params.filtered());
  REQUIRE(requests[1].params.max_tokens == 33);
  REQUIRE(requests[1].params.stop == sampling.stop);
  for (const GroupRequest& request : requests) {
    REQUIRE(request.sample_ids.size() == 1);
    REQUIRE(GreedyBaselines::Owns(Answer(request.sample_ids[0])));
  }
  REQUIRE_FALSE(GreedyBaselines::Owns(Answer(MakeSampleId(5, kTrainEpochs - 1, 0))));
  REQUIRE_FALSE(GreedyBaselines::Owns(Answer(MakeSampleId(5, kValidationEpoch, 0))));
}

TEST_CASE("a greedy baseline's reward belongs to its group, also where a row comes twice") {
  GreedyBaselines baselines;
  testing::FakeText text;
  RowReward reward;
  auto requests = baselines.Ask(1, 0, {MakePrompt(5), MakePrompt(6)}, 0, {});
  const auto more = baselines.Ask(1, 0, {MakePrompt(5)}, 2, {});
  requests.insert(requests.end(), more.begin(), more.end());
  REQUIRE(requests[0].sample_ids != requests[2].sample_ids);
  for (size_t i = requests.size(); i-- > 0;) {  // in any order
    REQUIRE(baselines.Put(Answer(requests[i].sample_ids[0]), text).ok());
  }
  const auto rewards = baselines.Score(reward);
  REQUIRE(rewards.ok());
  REQUIRE(*rewards == std::map<int64_t, double>{{0, 5}, {1, 6}, {2, 5}});
  REQUIRE(reward.asked.size() == 3);
  REQUIRE(reward.asked[0].response == "3 tokens");
}

TEST_CASE("a greedy baseline that is missing or that nobody asked for is an error") {
  GreedyBaselines baselines;
  testing::FakeText text;
  RowReward reward;
  const auto requests = baselines.Ask(1, 0, {MakePrompt(5), MakePrompt(6)}, 0, {});
  REQUIRE(baselines.Put(Answer(requests[0].sample_ids[0]), text).ok());
  REQUIRE(baselines.Score(reward).status().message().find("group 1") != std::string::npos);
  REQUIRE_FALSE(baselines.Put(Answer(MakeSampleId(7, kBaselineEpoch, 0)), text).ok());
  Sample stale = Answer(requests[1].sample_ids[0]);
  stale.versions = {0, 0, 1};
  REQUIRE(absl::IsDataLoss(baselines.Put(stale, text)));
}

}  // namespace tandem
