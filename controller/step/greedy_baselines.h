// The greedy response to every prompt of a step, whose reward is ReMax's baseline (Li et al. 2023,
// "ReMax: A Simple, Effective, and Efficient Reinforcement Learning Method for Aligning Large
// Language Models", eq. 5). Baselines are generated together with the step's samples, by the same
// weights, scored by the same reward function, and never trained on.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include "common/types/sample.h"
#include "controller/data/prompt.h"
#include "controller/reward/reward_function.h"
#include "controller/workers/rollout_client.h"

namespace tandem {

// Not thread-safe. One object per step; holds the text of one response per prompt.
class GreedyBaselines {
 public:
  // The requests for the baselines of `prompts`, whose first one is group `first_group`, in
  // addition to the requests for their samples. Uses `sampling` with temperature 0, top_p 1 and no
  // top_k. Adds to the baselines of earlier calls.
  std::vector<GroupRequest> Ask(int64_t step,
                                int64_t version,
                                const std::vector<Prompt>& prompts,
                                int64_t first_group,
                                const SamplingParams& sampling);
  // Whether a sample answers a baseline request; all others belong to the step.
  static bool Owns(const Sample& sample) {
    return ((sample.sample_id >> 12) & 0xfffu) == kBaselineEpoch;
  }
  // Stores a rollout's answer. Internal: the sample was not requested. DataLoss: weights of another
  // version sampled it.
  absl::Status Put(const Sample& sample, const PromptCodec& text);
  // The reward of every group's greedy response. Internal: a response is missing, or the function
  // returned another number of scores; else as RewardFunction::Score.
  absl::StatusOr<std::map<int64_t, double>> Score(RewardFunction& reward) const;

 private:
  struct Baseline {
    Prompt prompt;
    int64_t version = 0;  // of the weights
    bool answered = false;
    RewardItem item;
  };
  std::map<int64_t, Baseline> baselines_;     // by group
  std::map<uint64_t, int64_t> groups_;        // by sample id
  std::map<uint64_t, uint64_t> of_same_row_;  // number of requests by data row
};

}  // namespace tandem
