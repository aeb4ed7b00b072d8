#include "controller/step/greedy_baselines.h"

#include <utility>

#include <fmt/format.h>

#include "common/base/status.h"
#include "controller/step/scoring.h"

namespace tandem {

std::vector<GroupRequest> GreedyBaselines::Ask(int64_t step,
                                               int64_t version,
                                               const std::vector<Prompt>& prompts,
                                               int64_t first_group,
                                               const SamplingParams& sampling) {
  SamplingParams greedy = sampling;
  greedy.temperature = 0;
  greedy.top_p = 1;
  greedy.top_k = -1;
  std::vector<GroupRequest> requests;
  for (size_t i = 0; i < prompts.size(); ++i) {
    const int64_t group = first_group + static_cast<int64_t>(i);
    // A refill of dynamic sampling that crosses into the next epoch may draw a data row again.
    const uint64_t id =
        MakeSampleId(prompts[i].data_row, kBaselineEpoch, of_same_row_[prompts[i].data_row]++);
    groups_[id] = group;
    baselines_[group] = {.prompt = prompts[i], .version = version};
    requests.push_back({.request_id = fmt::format("{}-{}-greedy", step, group),
                        .version = version,
                        .prompt = prompts[i].tokens,
                        .sample_ids = {id},
                        .params = greedy,
                        .group = group});
  }
  return requests;
}

absl::Status GreedyBaselines::Put(const Sample& sample, const PromptCodec& text) {
  const auto found = groups_.find(sample.sample_id);
  if (found == groups_.end()) {
    return Internal("greedy sample {:#x} was returned, but was not requested", sample.sample_id);
  }
  Baseline& baseline = baselines_.at(found->second);
  for (const int64_t version : sample.versions) {
    if (version == baseline.version) continue;
    return MakeStatus(absl::StatusCode::kDataLoss,
                      "greedy sample {:#x}: weights of version {} sampled it, version {} was asked "
                      "for; this is a defect of the rollout",
                      sample.sample_id, version, baseline.version);
  }
  baseline.item = MakeRewardItem(text, baseline.prompt, sample);
  baseline.answered = true;
  return absl::OkStatus();
}

absl::StatusOr<std::map<int64_t, double>> GreedyBaselines::Score(RewardFunction& reward) const {
  std::vector<RewardItem> items;
  for (const auto& [group, baseline] : baselines_) {
    if (!baseline.answered) {
      return Internal("no rollout returned the greedy response of group {}, remax's baseline",
                      group);
    }
    items.push_back(baseline.item);
  }
  TANDEM_ASSIGN_OR_RETURN(const std::vector<RewardScore> scores, ScoreAll(reward, items));
  std::map<int64_t, double> rewards;
  size_t next = 0;
  for (const auto& [group, baseline] : baselines_) rewards[group] = scores[next++].score;
  return rewards;
}

}  // namespace tandem
