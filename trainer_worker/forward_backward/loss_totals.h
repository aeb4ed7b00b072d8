// The tokens that a loss selects among all of a mini-batch (losses/token_selection.h), by
// micro-batch.
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

// One entry per score of each micro-batch: 1 where selected.
using BatchSelection = std::vector<std::vector<uint8_t>>;

// Collective: the log-probs of a micro-batch under the current weights. A rank calls it for all of
// its micro-batches or for none, as all ranks do.
using ScoreBatch = std::function<absl::StatusOr<std::vector<float>>(const PackedBatch& batch)>;

// Collective. Without a selection: no entries at all. Fresh tokens have their old log-probs; if any
// token of any rank is not fresh, `score` runs once for every micro-batch.
absl::StatusOr<BatchSelection> SelectInBatches(const std::vector<PackedBatch>& batches,
                                               const std::vector<Sample>& samples,
                                               const MiniBatchRequest& request,
                                               const ScoreBatch& score,
                                               Communicator& communicator);

// The numbers of a mini-batch's loss: summed over micro-batches, then over ranks.
class LossTotals {
 public:
  void Add(const LossResult& result);
  // Collective: from now on the numbers are those of all ranks.
  absl::Status Reduce(Communicator& communicator);
  // verl's names, and actor/ratio_{min,mean,max}: of the importance ratios of the counted tokens,
  // absent where there are none.
  std::map<std::string, double> Metrics(const PolicyLossOptions& options) const;
  // actor/current_ratio_{min,mean,max}: the same without the stale tokens.
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
