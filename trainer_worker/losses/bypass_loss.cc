#include "trainer_worker/losses/bypass_loss.h"

#include <cmath>
#include <numeric>
#include <span>

#include "common/base/status.h"
#include "common/comm/communicator.h"
#include "common/rollout_correction/rollout_correction.h"

namespace tandem {
namespace {

// The tokens of one sequence, with their indices in LossTokens.
struct Sequence {
  std::vector<size_t> places;
  std::vector<float> policy, rollout, mask;

  LogProbRow row() const { return {.policy = policy, .rollout = rollout, .mask = mask}; }
};

std::vector<Sequence> SequencesOf(const LossTokens& tokens) {
  std::vector<Sequence> sequences(static_cast<size_t>(tokens.num_rows));
  for (size_t i = 0; i < tokens.log_probs.size(); ++i) {
    Sequence& sequence =
        sequences.at(tokens.rows.empty() ? 0 : static_cast<size_t>(tokens.rows[i]));
    sequence.places.push_back(i);
    sequence.policy.push_back(tokens.log_probs[i]);
    sequence.rollout.push_back(tokens.old_log_probs[i]);
    sequence.mask.push_back(tokens.mask.empty() ? 1.0f : tokens.mask[i]);
  }
  return sequences;
}

void Scatter(const Sequence& sequence, const std::vector<float>& from, std::vector<float>& to) {
  for (size_t t = 0; t < sequence.places.size(); ++t) to[sequence.places[t]] = from[t];
}

// A sample in the gather of samples. The gather of values holds its log-probs, the policy's before
// the rollout's.
struct RowHead {
  uint64_t sample_id = 0;
  uint64_t tokens = 0;
};

// Gathers the elements of all ranks on rank 0, in order of rank; returns none on other ranks.
template <typename T>
absl::StatusOr<std::vector<T>> GatherOnFirst(const std::vector<T>& mine, Communicator& host) {
  const auto size = static_cast<int64_t>(mine.size() * sizeof(T));
  std::vector<int64_t> sizes(static_cast<size_t>(host.world_size()));
  TANDEM_RETURN_IF_ERROR(host.AllGather(&size, sizeof(size), sizes.data()));
  const bool takes = host.rank() == 0;
  const int64_t bytes = takes ? std::accumulate(sizes.begin(), sizes.end(), int64_t{0}) : 0;
  std::vector<T> all(static_cast<size_t>(bytes) / sizeof(T));
  TANDEM_RETURN_IF_ERROR(host.AllGatherV(mine.data(), sizes, takes ? all.data() : nullptr));
  return all;
}

// The metrics of rank 0, which has the samples of all ranks; none on other ranks.
absl::StatusOr<std::map<std::string, double>> MetricsOf(const RolloutCorrectionOptions& options,
                                                        const std::map<uint64_t, LogProbRow>& rows,
                                                        bool any_token) {
  if (!any_token) return std::map<std::string, double>{};
  TANDEM_ASSIGN_OR_RETURN(RolloutCorrection correction, RolloutCorrection::Create(options));
  for (const auto& [id, row] : rows) TANDEM_RETURN_IF_ERROR(correction.Observe(row));
  TANDEM_ASSIGN_OR_RETURN(auto metrics, correction.Metrics());
  std::erase_if(metrics, [](const auto& metric) { return !std::isfinite(metric.second); });
  return metrics;
}

// The samples in order of id, as views of `values`.
std::map<uint64_t, LogProbRow> RowsOf(const std::vector<RowHead>& heads,
                                      const std::vector<float>& values) {
  std::map<uint64_t, LogProbRow> rows;
  std::span<const float> rest(values);
  for (const RowHead& head : heads) {
    rows[head.sample_id] = {.policy = rest.first(head.tokens),
                            .rollout = rest.subspan(head.tokens, head.tokens)};
    rest = rest.subspan(2 * head.tokens);
  }
  return rows;
}

}  // namespace

absl::StatusOr<std::string> BypassLossMode(const BypassOptions& bypass) {
  TANDEM_RETURN_IF_ERROR(RolloutCorrection::Create(bypass.correction).status());
  if (bypass.loss_type == "ppo_clip") return "vanilla";
  if (bypass.loss_type == "reinforce") return "gpg";
  return InvalidArgument(
      "algorithm.rollout_correction.loss_type is \"{}\"; use ppo_clip or reinforce",
      bypass.loss_type);
}

absl::StatusOr<BypassCorrection> CorrectInBypass(const LossTokens& tokens,
                                                 const BypassOptions& bypass) {
  const RolloutCorrectionOptions& options = bypass.correction;
  TANDEM_ASSIGN_OR_RETURN(RolloutCorrection correction, RolloutCorrection::Create(options));
  const bool weighs = correction.weighs() && bypass.loss_type == "reinforce";
  const std::vector<Sequence> sequences = SequencesOf(tokens);
  for (const Sequence& sequence : sequences) {
    if (!options.rollout_is_batch_normalize) break;  // only normalization needs the other sequences
    TANDEM_RETURN_IF_ERROR(correction.Observe(sequence.row()));
  }
  BypassCorrection result;
  if (weighs) result.weights.resize(tokens.log_probs.size());
  result.mask.resize(tokens.log_probs.size());
  for (const Sequence& sequence : sequences) {
    if (weighs) Scatter(sequence, correction.Weights(sequence.row()), result.weights);
    Scatter(sequence, correction.rejects() ? correction.Mask(sequence.row()) : sequence.mask,
            result.mask);
  }
  return result;
}

void BypassMetrics::AddToken(uint64_t sample_id, float policy, float rollout) {
  Row& row = rows_[sample_id];
  row.policy.push_back(policy);
  row.rollout.push_back(rollout);
}

absl::StatusOr<std::map<std::string, double>> BypassMetrics::Reduce(
    const RolloutCorrectionOptions& options, Communicator& communicator) {
  Communicator& host = communicator.host();
  std::vector<RowHead> my_heads;
  size_t my_tokens = 0;
  for (const auto& [id, row] : rows_) {
    my_heads.push_back({.sample_id = id, .tokens = row.policy.size()});
    my_tokens += row.policy.size();
  }
  std::vector<float> my_values;
  my_values.reserve(2 * my_tokens);
  for (auto& [id, row] : rows_) {
    my_values.insert(my_values.end(), row.policy.begin(), row.policy.end());
    my_values.insert(my_values.end(), row.rollout.begin(), row.rollout.end());
    row = Row();  // frees the copied values
  }
  rows_.clear();
  TANDEM_ASSIGN_OR_RETURN(const std::vector<RowHead> heads, GatherOnFirst(my_heads, host));
  TANDEM_ASSIGN_OR_RETURN(const std::vector<float> values, GatherOnFirst(my_values, host));
  const auto metrics = MetricsOf(options, RowsOf(heads, values), !values.empty());
  // The other ranks would wait for the first in the next collective.
  TANDEM_RETURN_IF_ERROR(Agree(host, metrics.status(), "the rollout correction").status());
  return metrics;
}

}  // namespace tandem
