// gae: delta_t = r_t + gamma V_next - V_t, A_t = delta_t + gamma lambda A_next, whitened over the
// step; returns are A + V before whitening (Schulman et al. 2016, arXiv 1506.02438, eq. 16). "Next"
// is the next trained token: A and V of masked tokens are skipped, which carry A_next on. As in
// verl, the whitened values of masked tokens are not zeroed.
#include "controller/algorithm/advantages/estimators.h"

namespace tandem {
namespace {

RowAdvantage OfRow(const AdvantageRow& row, double gamma, double lam) {
  const auto tokens = static_cast<size_t>(row.tokens);
  RowAdvantage result;
  result.tokens.resize(tokens);
  result.returns.resize(tokens);
  double next_value = 0, advantage = 0;
  for (size_t t = tokens; t-- > 0;) {
    if (row.mask[t] != 0) {
      const double delta = row.rewards[t] + gamma * next_value - row.values[t];
      advantage = delta + gamma * lam * advantage;
      next_value = row.values[t];
    }
    result.tokens[t] = advantage;
    result.returns[t] = advantage + row.values[t];
  }
  return result;
}

absl::StatusOr<std::vector<RowAdvantage>> Gae(const AdvantageGroup& group,
                                              const AdvantageOptions& options,
                                              const BatchScores&) {
  std::vector<RowAdvantage> results;
  for (const AdvantageRow& row : group) results.push_back(OfRow(row, options.gamma, options.lam));
  return results;
}

}  // namespace

AdvantageEstimator GaeEstimator() {
  return {.name = "gae",
          .needs = {.rewards = true, .values = true},
          .whitening = Whitening::kEverywhere,
          .compute = Gae};
}

}  // namespace tandem
