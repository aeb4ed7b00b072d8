// The policy loss of algorithm.rollout_correction.bypass_mode: the old policy is the rollout's, and
// rejection and importance weights come from the policy that is being trained, in the loss itself.
//   ppo_clip:  vanilla; its ratio is the importance weight already, so no other is applied
//   reinforce: gpg, L = -w A log-prob, w = sg(weight) of rollout_is, or 1 without it
// each over the tokens that rollout_rs keeps. Entropy and the KL penalty are over all tokens, as in
// verl 0.9.1, core_algos.py (bypass_mode) and docs/algo/rollout_corr_math.md.
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

// The loss_mode whose formula a loss_type has. InvalidArgument: an unknown loss_type, or a
// correction that cannot be read.
absl::StatusOr<std::string> BypassLossMode(const BypassOptions& bypass);

// What the correction makes of whole sequences, one entry per token in the order given.
struct BypassCorrection {
  std::vector<float> weights;  // empty without rollout_is, and with ppo_clip
  std::vector<float> mask;     // 0 or 1: LossTokens::mask and what is kept
};

// Of tokens.log_probs against tokens.old_log_probs, the rollout's. Weights and mask of a sequence
// are a function of it alone, so that no packing shows, unless weights are normalized.
// InvalidArgument: options that cannot be read.
absl::StatusOr<BypassCorrection> CorrectInBypass(const LossTokens& tokens,
                                                 const BypassOptions& bypass);

// rollout_corr/* of a mini-batch, spread over micro-batches and ranks in any way: all ranks'
// log-probs come together on rank 0 and are observed in order of sample id, so that the bits are
// always the same. Host memory, in no ledger: on every rank up to 16 bytes per counted token of its
// own (8 in arrays that grow, which Reduce copies and frees sample by sample), and in Reduce on
// rank 0 8 more per counted token of the whole mini-batch; 16 bytes per sample in both. Not
// thread-safe.
class BypassMetrics {
 public:
  // A sample of this rank; responses without tokens count in means over responses.
  void AddSample(uint64_t sample_id) { rows_[sample_id]; }
  // The next counted token of one of them.
  void AddToken(uint64_t sample_id, float policy, float rollout);
  // Collective, through communicator.host(); forgets all samples. On rank 0 the numbers that are
  // finite, none where no rank has a token that counts; nothing on other ranks.
  absl::StatusOr<std::map<std::string, double>> Reduce(const RolloutCorrectionOptions& options,
                                                       Communicator& communicator);

 private:
  struct Row {
    std::vector<float> policy, rollout;
  };
  std::map<uint64_t, Row> rows_;
};

}  // namespace tandem
