// Which values of the algorithm section go together, by advantage estimator.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/config/config.h"
#include "common/config/key_problem.h"

namespace tandem {

struct AdvantageRule {
  std::string_view name;  // of algorithm.adv_estimator
  // The advantage with rollout.n = 1, where the samples of a prompt are compared with each other;
  // empty: they are not.
  std::string_view alone{};
  bool learns_alone = true;    // false: `alone` teaches nothing, and rollout.n is at least 2
  bool discounts = false;      // reads algorithm.gamma
  bool bootstraps = false;     // reads algorithm.lam
  std::string_view refused{};  // why no run can use it; empty: runs can
};

// One per estimator, in the order of the key's choices.
std::span<const AdvantageRule> AdvantageRules();

// What is wrong with estimator, gamma, lam, the gdpo keys and rollout.n.
std::vector<KeyProblem> AdvantageProblems(const v1::Config& config);

// A line for the user where rollout.n = 1 leaves the estimator nothing to compare a sample with.
std::vector<std::string> AdvantageNotices(const v1::Config& config, const ConfigOrigins& origins);

}  // namespace tandem
