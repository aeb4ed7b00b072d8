// The policy loss of algorithm.rollout_correction.bypass_mode: the old policy is the rollout's, and
// the loss itself computes rejection and importance weights from the policy that is being trained.
//   ppo_clip:  vanilla; its ratio is already the importance weight, so no other is applied
//   reinforce: gpg, L = -w A log-prob, w = sg(weight) of rollout_is, or 1 without rollout_is
// Both are over the tokens that rollout_rs keeps. Entropy and the KL penalty are over all tokens,
// as in verl 0.9.1, core_algos.py (bypass_mode) and docs/algo/rollout_corr_math.md.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include "common/comm/communicator.h"
#include "trainer_worker/losses/policy_loss.h"

namespace tandem {

// The loss_mode whose formula implements a loss_type. InvalidArgument: an unknown loss_type, or
// correction options that cannot be parsed.
absl::StatusOr<std::string> BypassLossMode(const BypassOptions& bypass);

// The correction of complete sequences, with one entry per token in the given order.
struct BypassCorrection {
  std::vector<float> weights;  // empty without rollout_is, and with ppo_clip
  std::vector<float> mask;     // 0 or 1: LossTokens::mask without the rejected tokens
};

// Compares tokens.log_probs with tokens.old_log_probs, the rollout's. Unless weights are normalized
// over the batch, weights and mask of a sequence depend on that sequence alone, not on the packing.
// InvalidArgument: options that cannot be parsed.
absl::StatusOr<BypassCorrection> CorrectInBypass(const LossTokens& tokens,
                                                 const BypassOptions& bypass);

// The rollout_corr/* metrics of a mini-batch, which may be split over micro-batches and ranks in
// any way: rank 0 gathers all log-probs and observes them in order of sample id, so that the bits
// are always the same. Uses host memory that no ledger counts: on every rank up to 16 bytes per
// counted token of its own (8 in arrays that grow, which Reduce copies and frees sample by sample),
// and in Reduce on rank 0 8 more per counted token of the complete mini-batch; in both cases also
// 16 bytes per sample. Not thread-safe.
class BypassMetrics {
 public:
  // Adds a sample of this rank. Responses without tokens count in means over responses.
  void AddSample(uint64_t sample_id) { rows_[sample_id]; }
  // Adds the next counted token of a sample.
  void AddToken(uint64_t sample_id, float policy, float rollout);
  // Collective, through communicator.host(); forgets all samples. Returns the finite metrics on
  // rank 0, and none if no rank has a counted token; returns nothing on other ranks.
  absl::StatusOr<std::map<std::string, double>> Reduce(const RolloutCorrectionOptions& options,
                                                       Communicator& communicator);

 private:
  struct Row {
    std::vector<float> policy, rollout;
  };
  std::map<uint64_t, Row> rows_;
};

}  // namespace tandem
