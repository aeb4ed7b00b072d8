// Which values of the algorithm section go together, by advantage estimator.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/config/key_problem.h"
#include "tandem/v1/config.pb.h"

namespace tandem {

struct AdvantageRule {
  std::string_view name;       // of algorithm.adv_estimator
  bool compares = true;        // the samples of a prompt with each other: rollout.n is at least 2
  bool discounts = false;      // reads algorithm.gamma
  bool bootstraps = false;     // reads algorithm.lam
  std::string_view refused{};  // why no run can use it; empty: runs can
};

// One per estimator, in the order of the key's choices.
std::span<const AdvantageRule> AdvantageRules();

// What is wrong with estimator, gamma, lam, the gdpo keys and rollout.n.
std::vector<KeyProblem> AdvantageProblems(const v1::Config& config);

}  // namespace tandem
