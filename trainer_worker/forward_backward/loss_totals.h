// Loss totals of a mini-batch, and the tokens that a loss selects among all of the mini-batch's
// (losses/token_selection.h), stored by micro-batch.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include "common/comm/communicator.h"
#include "trainer_worker/forward_backward/mini_batch.h"
#include "trainer_worker/forward_backward/packing.h"
#include "trainer_worker/losses/policy_loss.h"

namespace tandem {

// For each micro-batch one entry per score: 1 if the token is selected.
using BatchSelection = std::vector<std::vector<uint8_t>>;

// Collective: computes the log-probs of a micro-batch under the current weights. Either all ranks
// call it for all of their micro-batches, or no rank calls it.
using ScoreBatch = std::function<absl::StatusOr<std::vector<float>>(const PackedBatch& batch)>;

// Collective. Returns no entries if the loss selects no tokens. The log-probs of fresh tokens
// (IsFresh) are their old ones; if any token of any rank is not fresh, `score` runs once for every
// micro-batch.
absl::StatusOr<BatchSelection> SelectInBatches(const std::vector<PackedBatch>& batches,
                                               const std::vector<Sample>& samples,
                                               const MiniBatchRequest& request,
                                               const ScoreBatch& score,
                                               Communicator& communicator);

// The sums behind a mini-batch's loss metrics, over micro-batches and then over ranks.
class LossTotals {
 public:
  void Add(const LossResult& result);
  // Collective: sums over ranks; from now on the numbers are those of all ranks.
  absl::Status Reduce(Communicator& communicator);
  // Metrics under verl's names, and actor/ratio_{min,mean,max} of the importance ratios of the
  // counted tokens; those are absent if there are none.
  std::map<std::string, double> Metrics(const PolicyLossOptions& options) const;
  // Adds actor/current_ratio_{min,mean,max}: the same without the stale tokens (IsStale).
  void AddCurrentRatios(std::map<std::string, double>& metrics) const;

 private:
  struct Sums {
    double loss = 0, policy_loss = 0, kl_loss = 0, entropy = 0;
    double tokens = 0, clipped = 0, clipped_dual = 0, approx_kl = 0, ratio = 0;
    double current_tokens = 0, current_ratio = 0;
  };
  struct Extremes {
    double least = LossResult().ratio_min, most = LossResult().ratio_max;
    double current_least = LossResult().ratio_min, current_most = LossResult().ratio_max;
  };
  Sums sums_;
  Extremes ratios_;
};

}  // namespace tandem
