#include "trainer_worker/forward_backward/loss_totals.h"

#include <algorithm>
#include <vector>

#include "common/base/status_macros.h"

namespace tandem {

void LossTotals::Add(const LossResult& result) {
  sums_.loss += result.loss;
  sums_.policy_loss += result.policy_loss;
  sums_.kl_loss += result.kl_loss;
  sums_.entropy += result.entropy;
  sums_.tokens += result.tokens;
  sums_.clipped += result.clipped_sum;
  sums_.clipped_dual += result.clipped_dual_sum;
  sums_.approx_kl += result.approx_kl_sum;
  sums_.ratio += result.ratio_sum;
  ratios_.least = std::min(ratios_.least, result.ratio_min);
  ratios_.most = std::max(ratios_.most, result.ratio_max);
  sums_.current_tokens += result.current_tokens;
  sums_.current_ratio += result.current_ratio_sum;
  ratios_.current_least = std::min(ratios_.current_least, result.current_ratio_min);
  ratios_.current_most = std::max(ratios_.current_most, result.current_ratio_max);
}

absl::Status LossTotals::Reduce(Communicator& communicator) {
  static_assert(sizeof(Sums) % sizeof(double) == 0);
  TANDEM_RETURN_IF_ERROR(
      communicator.AllReduceSum(reinterpret_cast<double*>(&sums_), sizeof(Sums) / sizeof(double)));
  std::vector<Extremes> all(static_cast<size_t>(communicator.world_size()));
  TANDEM_RETURN_IF_ERROR(communicator.host().AllGather(&ratios_, sizeof(ratios_), all.data()));
  for (const Extremes& rank : all) {
    ratios_.least = std::min(ratios_.least, rank.least);
    ratios_.most = std::max(ratios_.most, rank.most);
    ratios_.current_least = std::min(ratios_.current_least, rank.current_least);
    ratios_.current_most = std::max(ratios_.current_most, rank.current_most);
  }
  return absl::OkStatus();
}

std::map<std::string, double> LossTotals::Metrics(const PolicyLossOptions& options) const {
  const double tokens = std::max(sums_.tokens, 1.0);
  std::map<std::string, double> metrics = {{"actor/loss", sums_.loss},
                                           {"actor/pg_loss", sums_.policy_loss},
                                           {"actor/pg_clipfrac", sums_.clipped / tokens},
                                           {"actor/pg_clipfrac_lower", sums_.clipped_dual / tokens},
                                           {"actor/ppo_kl", sums_.approx_kl / tokens},
                                           {"actor/entropy", sums_.entropy}};
  if (options.entropy_coeff != 0) metrics["actor/entropy_loss"] = sums_.entropy;
  if (options.use_kl_loss) {
    metrics["actor/kl_loss"] = sums_.kl_loss;
    metrics["actor/kl_coef"] = options.kl_loss_coef;
  }
  if (sums_.tokens == 0) return metrics;
  metrics["actor/ratio_min"] = ratios_.least;
  metrics["actor/ratio_mean"] = sums_.ratio / sums_.tokens;
  metrics["actor/ratio_max"] = ratios_.most;
  return metrics;
}

void LossTotals::AddCurrentRatios(std::map<std::string, double>& metrics) const {
  if (sums_.current_tokens == 0) return;
  metrics["actor/current_ratio_min"] = ratios_.current_least;
  metrics["actor/current_ratio_mean"] = sums_.current_ratio / sums_.current_tokens;
  metrics["actor/current_ratio_max"] = ratios_.current_most;
}

}  // namespace tandem
