// grpo, grpo_vectorized: (s - mean) / (std + 1e-6), std with n - 1 (Shao et al. 2024, DeepSeekMath,
// eq. 3). With norm_adv_by_std_in_grpo=false: s - mean (Dr. GRPO, Liu et al. 2025). A group of one
// has mean 0 and std 1: its advantage is s / (1 + 1e-6).
#include "controller/algorithm/advantage_estimator.h"
#include "controller/algorithm/group_scores.h"

namespace tandem {
namespace {

absl::StatusOr<std::vector<RowAdvantage>> Grpo(const AdvantageGroup& group,
                                               const AdvantageOptions& options,
                                               const BatchScores&) {
  const GroupScale scale = options.by_std ? GroupScale::kStandardDeviation : GroupScale::kNone;
  const std::vector<float> advantages =
      GrpoAdvantages(ScoresOf(group), scale, options.epsilon.value_or(1e-6));
  std::vector<RowAdvantage> results(group.size());
  for (size_t i = 0; i < group.size(); ++i) results[i].value = advantages[i];
  return results;
}

}  // namespace

extern const AdvantageEstimator kGrpoEstimator = {.alone = "the score itself", .compute = Grpo};

extern const AdvantageEstimator kGrpoVectorizedEstimator = {.alone = "the score itself",
                                                            .compute = Grpo};

}  // namespace tandem
