#include "controller/step/correction.h"

#include <cmath>
#include <vector>

#include <fmt/format.h>

#include "common/base/status.h"
#include "common/rollout_correction/off_policy_metrics.h"
#include "common/types/response_tokens.h"

namespace tandem {
namespace {

LogProbRow RowOf(const Sample& sample) {
  return {.policy = sample.old_log_probs, .rollout = sample.log_probs, .mask = sample.mask};
}

// Sets the mask to the trained tokens: the trainers compute no log-probs of tool output.
absl::StatusOr<Sample> ReadTrained(const SampleStore& samples, uint64_t sample_id) {
  TANDEM_ASSIGN_OR_RETURN(Sample sample, samples.Read(sample_id));
  sample.mask = CountedTokens(sample);
  return sample;
}

bool HasBoth(const SampleMeta& meta) {
  return meta.has_log_probs && meta.arrays.of(TokenArray::kRecomputed) >= 0;
}

// Separates the tokens that the step's weights sampled from those that older weights sampled.
struct Comparisons {
  ProbabilityComparison current, older;

  void Add(const Sample& sample, int64_t version) {
    const LogProbRow row = RowOf(sample);
    for (size_t t = 0; t < row.size(); ++t) {
      if (!row.counts(t)) continue;
      const bool is_older = t < sample.versions.size() && sample.versions[t] < version;
      (is_older ? older : current).Add(row.policy[t], row.rollout[t]);
    }
  }
  ProbabilityComparison Both() const {
    ProbabilityComparison both = current;
    both.Join(older);
    return both;
  }
};

void AddDifferences(const Comparisons& comparisons, StepFacts& facts) {
  AddFinite(comparisons.current.Metrics(), facts);
  const ProbabilityComparison& older = comparisons.older;
  if (older.tokens == 0) return;
  facts.trainer["partial/stale_probs_diff_max"] = older.difference_max;
  facts.trainer["partial/stale_probs_diff_mean"] = older.difference_mean;
}

absl::Status PutCorrection(const RolloutCorrection& correction,
                           int64_t step,
                           uint64_t sample_id,
                           SampleStore& samples) {
  TANDEM_ASSIGN_OR_RETURN(const Sample sample, ReadTrained(samples, sample_id));
  const LogProbRow row = RowOf(sample);
  if (correction.weighs()) {
    TANDEM_RETURN_IF_ERROR(
        samples.PutArray(step, TokenArray::kIsWeights, sample_id, correction.Weights(row)));
  }
  if (!correction.rejects()) return absl::OkStatus();
  return samples.PutArray(step, TokenArray::kMask, sample_id, correction.Mask(row));
}

int64_t TokensLeft(const SampleStore& samples) {
  int64_t tokens = 0;
  for (const SampleMeta& meta : samples.Metas()) tokens += meta.trained_tokens;
  return tokens;
}

}  // namespace

void AddFinite(const std::map<std::string, double>& metrics, StepFacts& facts) {
  for (const auto& [name, value] : metrics) {
    if (std::isfinite(value)) facts.trainer[name] = value;
  }
}

absl::Status CorrectRollout(const TrainOptions& options, SampleStore& samples, StepBatch& batch) {
  if (!options.recompute_old_log_probs) return absl::OkStatus();
  TANDEM_ASSIGN_OR_RETURN(RolloutCorrection correction,
                          RolloutCorrection::Create(options.correction));
  Comparisons comparisons;
  std::vector<uint64_t> compared;
  for (const SampleMeta& meta : samples.Metas()) {
    if (!HasBoth(meta)) continue;
    TANDEM_ASSIGN_OR_RETURN(const Sample sample, ReadTrained(samples, meta.sample_id));
    comparisons.Add(sample, batch.version);
    TANDEM_RETURN_IF_ERROR(correction.Observe(RowOf(sample)));
    compared.push_back(meta.sample_id);
  }
  const ProbabilityComparison probabilities = comparisons.Both();
  if (probabilities.tokens == 0 && !options.correction.enabled()) return absl::OkStatus();
  const auto metrics = correction.Metrics();
  TANDEM_RETURN_IF_ERROR(Annotate(metrics.status(), fmt::format("step {}", batch.step)));
  AddFinite(*metrics, batch.facts);
  AddDifferences(comparisons, batch.facts);
  if (!options.correction.enabled()) return absl::OkStatus();
  for (const uint64_t id : compared) {
    TANDEM_RETURN_IF_ERROR(PutCorrection(correction, batch.step, id, samples));
  }
  if (!correction.rejects() || TokensLeft(samples) > 0) return absl::OkStatus();
  // InvalidArgument, as a recovery would fail in the same way.
  return InvalidArgument(
      "step {}: algorithm.rollout_correction.rollout_rs={} with rollout_rs_threshold={} rejected "
      "all {:.0f} response tokens, mean |Δ probability| between rollout and trainers {:.3g}: "
      "nothing is left to train on. Raise the threshold, or find out why the two differ "
      "(tandem-parity)",
      batch.step, *options.correction.rollout_rs, *options.correction.rollout_rs_threshold,
      probabilities.tokens, probabilities.difference_mean);
}

}  // namespace tandem
