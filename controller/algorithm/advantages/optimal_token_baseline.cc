// optimal_token_baseline: A_t = G_t - B_t for trained tokens, with rewards to go G_t and a baseline
// per position: B_t = sum_i G_it W_it / (sum_i W_it + 1e-8) over the responses i of the group that
// have a trained token t. W_t = sum over the trained t' <= t of (1 - 2 pi_t' + sum pi^2) rho_t'^2
// is the squared norm of the accumulated score function, where pi is the probability of the token,
// sum pi^2 runs over the vocabulary, and rho is the rollout importance weight. (The
// variance-minimizing baseline of Weaver and Tao 2001, applied to each token, as in verl's
// core_algos.) A group of one has baseline 0.
//
// tir_optimal_token_baseline, for responses with tool turns: positions count trained tokens only,
// and responses without trained tokens do not belong to the group.
//
// Zero tail (on by default, as in verl): if one response of the group is longer than all others,
// it has no baseline beyond the second longest, because there the baseline would be its own return.
// Lengths are numbers of trained tokens; optimal_token_baseline compares them with positions, as
// verl does, even if masked tokens come earlier.
#include <algorithm>
#include <cmath>

#include "controller/algorithm/advantage_estimator.h"
#include "controller/algorithm/group_scores.h"

namespace tandem {
namespace {

// The terms of the baseline for one response, in the estimator's positions.
struct Trace {
  std::vector<double> returns;
  std::vector<double> weights;  // W; 0 where the token is not trained
};

Trace TraceOf(const AdvantageRow& row, bool compact) {
  const std::vector<double> returns = RewardsToGo(row);
  Trace trace;
  double weight = 0;
  for (size_t t = 0; t < returns.size(); ++t) {
    if (row.mask[t] != 0) {
      const double rho = row.is_weights.empty() ? 1.0 : row.is_weights[t];
      const double pi = std::exp(static_cast<double>(row.log_probs[t]));
      weight += (1.0 - 2.0 * pi + row.sum_pi_squared[t]) * rho * rho;
    } else if (compact) {
      continue;
    }
    trace.returns.push_back(returns[t]);
    trace.weights.push_back(row.mask[t] != 0 ? weight : 0.0);
  }
  return trace;
}

// B_t, as long as the longest trace. Sums run in the order of the traces, in double.
std::vector<double> BaselineOf(const std::vector<Trace>& traces, double epsilon) {
  size_t longest = 0;
  for (const Trace& trace : traces) longest = std::max(longest, trace.returns.size());
  std::vector<double> numerators(longest), denominators(longest);
  for (const Trace& trace : traces) {
    for (size_t t = 0; t < trace.returns.size(); ++t) {
      numerators[t] += trace.returns[t] * trace.weights[t];
      denominators[t] += trace.weights[t];
    }
  }
  for (size_t t = 0; t < longest; ++t) numerators[t] /= denominators[t] + epsilon;
  return numerators;
}

// The longest response, and the position from which it has no baseline. row -1: no such response.
struct ZeroTail {
  int64_t row = -1;
  int64_t from = 0;
};

ZeroTail ZeroTailOf(const AdvantageGroup& group, const std::vector<size_t>& members) {
  ZeroTail tail;
  int64_t longest = -1;
  for (const size_t i : members) {
    const int64_t length = group[i].trained;
    if (length > longest) {
      tail = {.row = static_cast<int64_t>(i), .from = longest};
      longest = length;
    } else {
      tail.from = std::max(tail.from, length);
    }
  }
  return tail.from < longest ? tail : ZeroTail{};
}

std::vector<RowAdvantage> TokenBaselines(const AdvantageGroup& group,
                                         double epsilon,
                                         bool zero_tail,
                                         bool compact) {
  std::vector<Trace> traces;
  std::vector<size_t> members;
  for (size_t i = 0; i < group.size(); ++i) {
    traces.push_back(TraceOf(group[i], compact));
    if (!compact || group[i].trained > 0) members.push_back(i);
  }
  std::vector<double> baseline;
  if (members.size() > 1) baseline = BaselineOf(traces, epsilon);
  const ZeroTail tail = zero_tail && members.size() > 1 ? ZeroTailOf(group, members) : ZeroTail{};
  std::vector<RowAdvantage> results(group.size());
  for (size_t i = 0; i < group.size(); ++i) {
    const AdvantageRow& row = group[i];
    results[i].returns = RewardsToGo(row);
    results[i].tokens.resize(results[i].returns.size());
    int64_t position = -1;
    for (size_t t = 0; t < results[i].tokens.size(); ++t) {
      if (row.mask[t] != 0 || !compact) ++position;
      if (row.mask[t] == 0) continue;
      const bool none =
          baseline.empty() || (static_cast<int64_t>(i) == tail.row && position >= tail.from);
      results[i].tokens[t] =
          results[i].returns[t] - (none ? 0.0 : baseline[static_cast<size_t>(position)]);
    }
  }
  return results;
}

absl::StatusOr<std::vector<RowAdvantage>> Otb(const AdvantageGroup& group,
                                              const AdvantageOptions& options,
                                              const BatchScores&) {
  return TokenBaselines(group, options.epsilon.value_or(1e-8),
                        options.handle_zero_tail.value_or(true), /*compact=*/false);
}

absl::StatusOr<std::vector<RowAdvantage>> TirOtb(const AdvantageGroup& group,
                                                 const AdvantageOptions& options,
                                                 const BatchScores&) {
  return TokenBaselines(group, options.epsilon.value_or(1e-8),
                        options.handle_zero_tail.value_or(true), /*compact=*/true);
}

}  // namespace

extern const AdvantageEstimator kOptimalTokenBaselineEstimator = {
    .needs = {.rewards = true, .policy = true}, .alone = "the reward to go itself", .compute = Otb};

extern const AdvantageEstimator kTirOptimalTokenBaselineEstimator = {
    .needs = {.rewards = true, .policy = true},
    .alone = "the reward to go itself",
    .compute = TirOtb};

}  // namespace tandem
