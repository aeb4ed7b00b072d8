// The numbers of a mini-batch's loss: summed over micro-batches, then over ranks.
#pragma once

#include <map>
#include <string>

#include <absl/status/status.h>

#include "common/comm/communicator.h"
#include "trainer_worker/losses/policy_loss.h"

namespace tandem {

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
