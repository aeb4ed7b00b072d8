// An advantage estimator is a pure function of one group of responses, together with the fields
// that it reads, whether its results are whitened over the step, and rules about the configuration.
// Estimators see a step group by group, so that only one group's arrays are in memory. Everything
// here is pure and thread-safe.
//
// To add one, add a source to advantages/ that states formula and paper and defines
//   extern const AdvantageEstimator kGrpoPasskEstimator = {.compute = GrpoPassk};
// Its name in algorithm.adv_estimator is the symbol's in snake case, grpo_passk: the build finds it
// (deploy/cmake/TandemRegistry.cmake). In the formulas: r_t token reward, m_t mask, s = sum of r_t,
// n = size of the group; means run over the group. A result is spread over the trained tokens
// unless it has an index t.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <absl/status/statusor.h>

namespace tandem::v1 {
class Config;
}  // namespace tandem::v1

namespace tandem {

class ConfigProblems;

// One response of a group. Arrays have `tokens` entries, or none if the estimator's needs do not
// name them.
struct AdvantageRow {
  uint64_t sample_id = 0;
  int64_t tokens = 0;   // of the response
  int64_t trained = 0;  // number of tokens that `mask` keeps
  // The sum of the token rewards, masked tokens included; an empty response has a score as well.
  float score = 0;
  double baseline = 0;                // reward of the greedy response to the same prompt
  std::vector<float> components;      // the reward keys of gdpo, in the order of the options
  std::vector<float> mask;            // 1: trained; 0: a tool's token, or rejected
  std::vector<float> rewards;         // of each token
  std::vector<float> log_probs;       // of the tokens, under the policy that sampled them
  std::vector<float> sum_pi_squared;  // sum over the vocabulary of the squared probabilities
  std::vector<float> is_weights;      // rollout importance weights; empty: all 1
};

// Rows are in order of sample id: sums in this order do not depend on the order of arrival.
using AdvantageGroup = std::vector<AdvantageRow>;

// The fields of a row that an estimator reads in addition to score, tokens and trained.
struct AdvantageNeeds {
  bool rewards = false;  // rewards and mask
  bool policy = false;   // log_probs, sum_pi_squared and, if present, is_weights
  bool baseline = false;
  bool components = false;
};

struct AdvantageOptions {
  bool by_std = true;             // algorithm.norm_adv_by_std_in_grpo
  std::optional<double> epsilon;  // absent: the estimator's default
  double gamma = 1;
  std::vector<double> component_weights;  // one per component; empty: all 1
  std::optional<bool> handle_zero_tail;   // of the token baselines; absent: the estimator's default
};

// Numbers over the complete step, masked tokens included.
struct BatchScores {
  int64_t samples = 0;
  int64_t nonzero = 0;
};

// The result for one response. Losses ignore advantages at masked tokens.
struct RowAdvantage {
  // Of every trained token, 0 at the others; unused if `tokens` is set. May be NaN for a response
  // without trained tokens.
  double value = 0;
  std::vector<double> tokens;   // [tokens], or empty
  std::vector<double> returns;  // [tokens]; empty: the advantages
};

enum class Whitening {
  kNone,
  kTrained  // (x - mean) / sqrt(var + 1e-8) over the step's trained tokens, 0 elsewhere
};

struct AdvantageEstimator {
  std::string_view name = {};  // set by FindAdvantageEstimator
  AdvantageNeeds needs = {};
  Whitening whitening = Whitening::kNone;

  // The advantage with rollout.n = 1, for messages. Empty: the estimator does not compare the
  // samples of a prompt with each other.
  std::string_view alone = {};
  bool learns_alone = true;  // false: rollout.n = 1 is refused, as nothing would be learned
  bool discounts = false;    // reads algorithm.gamma
  bool bootstraps = false;   // reads algorithm.lam
  std::string_view unavailable = {};  // why no run can use the estimator; empty: runs can
  // Further rules about the configuration; null: none.
  void (*check)(const v1::Config& config, ConfigProblems& problems) = nullptr;

  // Returns one result per row of a group that has the needed fields. InvalidArgument: the
  // estimator is not defined for the group. Null if and only if `unavailable` is set.
  absl::StatusOr<std::vector<RowAdvantage>> (*compute)(const AdvantageGroup& group,
                                                       const AdvantageOptions& options,
                                                       const BatchScores& batch) = nullptr;
};

// Finds an estimator by its name in algorithm.adv_estimator. InvalidArgument: lists the usable
// names.
absl::StatusOr<AdvantageEstimator> FindAdvantageEstimator(const std::string& name);

// The estimators that runs can use, in alphabetical order of their sources.
std::vector<std::string> AdvantageEstimatorNames();

// A check for CheckConfig: estimator, gamma, lam, rollout.n, the keys of gdpo, and inputs that only
// other keys provide. Adds a notice where rollout.n = 1 leaves no other sample to compare with.
void CheckAdvantageEstimator(const v1::Config& config, ConfigProblems& problems);

}  // namespace tandem
