// GRPO's group-relative advantage (Shao et al. 2024, DeepSeekMath, eq. 3; verl core_algos
// compute_grpo_outcome_advantage).
#pragma once

#include <vector>

namespace tandem {

enum class GroupScale {
  kStandardDeviation,  // (s - mean) / (std + epsilon), std with n - 1
  kNone,               // s - mean (Dr. GRPO)
};

// One advantage per score of one group, the same for every response token. A group of one has mean
// 0 and standard deviation 1, as in verl. Computed in fp32, which is what the trainer gets.
std::vector<float> GrpoAdvantages(const std::vector<float>& scores,
                                  GroupScale scale,
                                  double epsilon = 1e-6);

}  // namespace tandem
