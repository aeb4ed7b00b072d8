// What an advantage estimator is: a pure function of one group of responses, the numbers it reads,
// and whether its results are whitened over the step. Estimators see a step group by group, so that
// the arrays of one group at a time are in memory. Everything here is pure and thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <absl/status/statusor.h>

namespace tandem {

// One response of a group. Arrays have `tokens` entries, or none where the estimator's needs do not
// name them.
struct AdvantageRow {
  uint64_t sample_id = 0;
  int64_t tokens = 0;   // of the response
  int64_t trained = 0;  // of these: those that `mask` keeps
  float score = 0;  // sum of the token rewards, masked ones included; what an empty response got
  double baseline = 0;                // reward of the greedy response to the same prompt
  std::vector<float> components;      // the reward keys of gdpo, in the order of the options
  std::vector<float> mask;            // 1: trained; 0: another's token, or rejected
  std::vector<float> rewards;         // of each token
  std::vector<float> log_probs;       // of the tokens, under the policy that samples are taken from
  std::vector<float> sum_pi_squared;  // sum over the vocabulary of the squared probabilities
  std::vector<float> is_weights;      // rollout importance weights; empty: all 1
};

// In order of sample id: sums are made in this order, so that arrival does not change a bit.
using AdvantageGroup = std::vector<AdvantageRow>;

// Which fields of a row an estimator reads besides score, tokens and trained.
struct AdvantageNeeds {
  bool rewards = false;  // and the mask
  bool policy = false;   // log_probs, sum_pi_squared and, if there are any, is_weights
  bool baseline = false;
  bool components = false;
};

struct AdvantageOptions {
  bool by_std = true;             // algorithm.norm_adv_by_std_in_grpo
  std::optional<double> epsilon;  // none: the estimator's own
  double gamma = 1;
  std::vector<double> component_weights;  // one per component; empty: all 1
  std::optional<bool> handle_zero_tail;   // of the token baselines; none: the estimator's own
};

// Of the whole step, masked tokens or not.
struct BatchScores {
  int64_t samples = 0;
  int64_t nonzero = 0;
};

// Of one response. Advantages at masked tokens mean nothing to a loss.
struct RowAdvantage {
  double value = 0;             // of every trained token, 0 at the others; unless `tokens` has them
  std::vector<double> tokens;   // [tokens], or empty
  std::vector<double> returns;  // [tokens]; empty: the advantages
};

enum class Whitening {
  kNone,
  kTrained  // (x - mean) / sqrt(var + 1e-8) over the step's trained tokens, 0 elsewhere
};

struct AdvantageEstimator {
  std::string_view name;
  AdvantageNeeds needs;
  Whitening whitening = Whitening::kNone;
  // One result per row of a group that fits the needs. InvalidArgument: a group it is not defined
  // for.
  absl::StatusOr<std::vector<RowAdvantage>> (*compute)(const AdvantageGroup& group,
                                                       const AdvantageOptions& options,
                                                       const BatchScores& batch) = nullptr;
};

// By the name of algorithm.adv_estimator. InvalidArgument lists the names there are.
absl::StatusOr<AdvantageEstimator> FindAdvantageEstimator(const std::string& name);

// Every name, in order of the table.
std::vector<std::string> AdvantageEstimatorNames();

}  // namespace tandem
