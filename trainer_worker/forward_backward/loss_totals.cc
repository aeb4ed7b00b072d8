#include "trainer_worker/forward_backward/loss_totals.h"

#include <algorithm>
#include <vector>

#include "common/base/status.h"
#include "common/comm/communicator.h"
#include "trainer_worker/forward_backward/token_inputs.h"

namespace tandem {
namespace {

bool AllFresh(const std::vector<PackedBatch>& batches,
              const std::vector<Sample>& samples,
              const MiniBatchRequest& request) {
  for (const PackedBatch& batch : batches) {
    for (size_t i = 0; i < batch.scored_response.size(); ++i) {
      const auto response = static_cast<size_t>(batch.scored_response[i]);
      if (!IsFresh(ScoredSample(batch, samples, i), response, request)) return false;
    }
  }
  return true;
}

// Adds the counted tokens. Without `log_probs` the current log-probs are the old ones.
void Collect(const PackedBatch& batch,
             const std::vector<Sample>& samples,
             const MiniBatchRequest& request,
             const std::vector<float>* log_probs,
             std::vector<SelectionToken>& tokens) {
  for (size_t i = 0; i < batch.scored_response.size(); ++i) {
    const Sample& sample = ScoredSample(batch, samples, i);
    const auto response = static_cast<size_t>(batch.scored_response[i]);
    if (!IsCounted(sample, response)) continue;
    const float old = OldLogProbs(sample, request)[response];
    tokens.push_back({.log_prob = log_probs == nullptr ? old : (*log_probs)[i],
                      .old_log_prob = old,
                      .advantage = sample.advantages[response],
                      .sample_id = sample.sample_id,
                      .position = batch.scored_response[i]});
  }
}

// Converts entries per counted token back to entries per score.
BatchSelection Spread(const std::vector<PackedBatch>& batches,
                      const std::vector<Sample>& samples,
                      const std::vector<uint8_t>& selected) {
  BatchSelection result;
  size_t next = 0;
  for (const PackedBatch& batch : batches) {
    std::vector<uint8_t>& scores = result.emplace_back(batch.scored_response.size(), uint8_t{0});
    for (size_t i = 0; i < scores.size(); ++i) {
      const auto response = static_cast<size_t>(batch.scored_response[i]);
      if (IsCounted(ScoredSample(batch, samples, i), response)) scores[i] = selected[next++];
    }
  }
  return result;
}

}  // namespace

absl::StatusOr<BatchSelection> SelectInBatches(const std::vector<PackedBatch>& batches,
                                               const std::vector<Sample>& samples,
                                               const MiniBatchRequest& request,
                                               const ScoreBatch& score,
                                               Communicator& communicator) {
  const Selection selection = SelectionOf(request.loss);
  if (selection == Selection::kNone) return BatchSelection();
  TANDEM_ASSIGN_OR_RETURN(const std::vector<int64_t> stale,
                          Agree(communicator, absl::OkStatus(), "selecting tokens",
                                AllFresh(batches, samples, request) ? 0 : 1));
  const bool fresh = *std::max_element(stale.begin(), stale.end()) == 0;
  std::vector<SelectionToken> tokens;
  for (const PackedBatch& batch : batches) {
    std::vector<float> log_probs;
    if (!fresh) {
      TANDEM_ASSIGN_OR_RETURN(log_probs, score(batch));
    }
    Collect(batch, samples, request, fresh ? nullptr : &log_probs, tokens);
  }
  TANDEM_ASSIGN_OR_RETURN(const std::vector<uint8_t> selected,
                          SelectTokens(selection, tokens, request.loss,
                                       {.seed = request.seed, .step = request.step}, communicator));
  return Spread(batches, samples, selected);
}

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
