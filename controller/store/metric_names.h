// The metrics that progress and report show, by verl's names.
#pragma once

namespace tandem {

inline constexpr const char* kRewardMean = "critic/rewards/mean";
inline constexpr const char* kResponseLengthMean = "response_length/mean";
// Nearest rank, over the samples trained on.
inline constexpr const char* kResponseLengthP50 = "response_length/p50";
inline constexpr const char* kResponseLengthP99 = "response_length/p99";
inline constexpr const char* kGenerationThroughput = "perf/generation_tokens_per_second";
inline constexpr const char* kTrainingThroughput = "perf/training_tokens_per_second";
inline constexpr const char* kEntropy = "actor/entropy";
inline constexpr const char* kPolicyKl = "actor/ppo_kl";
inline constexpr const char* kGradNorm = "actor/grad_norm";
// Of the KL penalty in the reward: the mean over responses of the mean over their tokens, before it
// is weighed, and its coefficient in the step.
inline constexpr const char* kRewardKl = "actor/reward_kl_penalty";
inline constexpr const char* kRewardKlCoef = "actor/reward_kl_penalty_coeff";
// Updates of the step that were left out; absent where none was.
inline constexpr const char* kSkippedUpdates = "actor/skipped_updates";
// Updates of the step without a token that bypass mode left to its policy loss; absent where none
// was.
inline constexpr const char* kRejectedUpdates = "actor/rejected_updates";
// Part of the tokens that the rollout correction rejected.
inline constexpr const char* kMaskedFraction = "rollout_corr/rollout_rs_masked_fraction";
// Trained tokens that older weights sampled than those which their step began with.
inline constexpr const char* kStaleTokens = "partial/stale_tokens";
inline constexpr const char* kStaleTokensShare = "partial/stale_tokens_share";
inline constexpr const char* kStalenessMean = "partial/staleness_mean";
// Of a step with partial rollout, absent without it (docs/partial.md, Metrics).
inline constexpr const char* kRounds = "partial/rounds";
inline constexpr const char* kOverlapRounds = "partial/overlap_rounds";
inline constexpr const char* kOverlapTokens = "partial/overlap_tokens";
inline constexpr const char* kCarriedGroups = "partial/carried_groups";
inline constexpr const char* kCarriedSamples = "partial/carried_samples";
inline constexpr const char* kWholeGroupsLeft = "partial/whole_groups_left";
inline constexpr const char* kCutSamples = "partial/cut_samples";
inline constexpr const char* kPrefilledAgain = "partial/prefilled_again_tokens";
inline constexpr const char* kPartialSamples = "partial/total_partial_num";
inline constexpr const char* kPartialRatio = "partial/partial_ratio";
inline constexpr const char* kPartialSpan = "partial/max_partial_span";
// Rollouts that were sent a version which they had held before they lost it; absent where none was.
inline constexpr const char* kResentWeights = "weights/resent_rollouts";
// Batches of prompts that a step took to fill; absent without algorithm.filter_groups.
inline constexpr const char* kGenerationBatches = "training/filter_groups/num_gen_batches";
// Slot-seconds that the tail of generation left empty, and their share of all; what a cap per round
// would save of the generation's seconds, by the cap's name
// (controller/partial_rollout/tail_recorder.h).
inline constexpr const char* kTailEmptySlotSeconds = "partial/tail_empty_slot_seconds";
inline constexpr const char* kTailShare = "partial/tail_share";
inline constexpr const char* kPredictedSaving = "partial/predicted_saving_s/";
inline constexpr const char* kGeneratedTokens = "perf/generated_tokens";
inline constexpr const char* kGenerationSeconds = "timing_s/gen";
inline constexpr const char* kStepSeconds = "timing_s/step";
// Mean reward of a validation pass, and half the width of its 95 % interval.
inline constexpr const char* kValRewardMean = "val/reward/mean";
inline constexpr const char* kValRewardInterval = "val/reward/ci95";

}  // namespace tandem
