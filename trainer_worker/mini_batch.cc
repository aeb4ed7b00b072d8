#include "trainer_worker/mini_batch.h"

#include <algorithm>

#include <absl/time/clock.h>
#include <absl/time/time.h>

#include "common/base/status_macros.h"
#include "common/types/finite_log_probs.h"
#include "trainer_worker/agreement.h"

namespace tandem {
namespace {

// Sums over tokens and micro-batches, then over ranks.
struct Totals {
  double loss = 0, policy_loss = 0, kl_loss = 0, entropy = 0;
  double tokens = 0, clipped = 0, clipped_dual = 0, approx_kl = 0;
};

void Add(const LossResult& result, Totals& totals) {
  totals.loss += result.loss;
  totals.policy_loss += result.policy_loss;
  totals.kl_loss += result.kl_loss;
  totals.entropy += result.entropy;
  totals.tokens += result.tokens;
  totals.clipped += result.clipped_sum;
  totals.clipped_dual += result.clipped_dual_sum;
  totals.approx_kl += result.approx_kl_sum;
}

std::map<std::string, double> Metrics(const Totals& totals, const PolicyLossOptions& options) {
  const double tokens = std::max(totals.tokens, 1.0);
  std::map<std::string, double> metrics = {
      {"actor/loss", totals.loss},
      {"actor/pg_loss", totals.policy_loss},
      {"actor/pg_clipfrac", totals.clipped / tokens},
      {"actor/pg_clipfrac_lower", totals.clipped_dual / tokens},
      {"actor/ppo_kl", totals.approx_kl / tokens},
      {"actor/entropy", totals.entropy}};
  if (options.entropy_coeff != 0) metrics["actor/entropy_loss"] = totals.entropy;
  if (options.use_kl_loss) {
    metrics["actor/kl_loss"] = totals.kl_loss;
    metrics["actor/kl_coef"] = options.kl_loss_coef;
  }
  return metrics;
}

absl::Status CheckLength(const Sample& sample,
                         size_t length,
                         const char* what,
                         const char* remedy) {
  const auto response = static_cast<size_t>(sample.response_tokens());
  if (length == response) return absl::OkStatus();
  return InvalidArgument("sample {} has {} {} for {} response tokens; {}", sample.sample_id, length,
                         what, response, remedy);
}

absl::Status CheckLogProbs(const std::vector<Sample>& samples, const MiniBatchRequest& request) {
  const bool sampled = !request.recomputed_old_log_probs || request.compare_log_probs;
  for (const Sample& sample : samples) {
    TANDEM_RETURN_IF_ERROR(
        CheckLength(sample, sample.advantages.size(), "advantages", "compute them first"));
    if (sampled) {
      const char* remedy = "rollout.calculate_log_probs must be true";
      TANDEM_RETURN_IF_ERROR(CheckLength(sample, sample.log_probs.size(), "log-probs", remedy));
      TANDEM_RETURN_IF_ERROR(CheckLength(sample, sample.versions.size(), "versions", remedy));
    }
    if (request.recomputed_old_log_probs) {
      TANDEM_RETURN_IF_ERROR(CheckLength(sample, sample.old_log_probs.size(),
                                         "recomputed log-probs", "ComputeLogProbs comes first"));
    }
    if (request.loss.use_kl_loss) {
      TANDEM_RETURN_IF_ERROR(CheckLength(sample, sample.ref_log_probs.size(), "reference log-probs",
                                         "ComputeLogProbs comes first"));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckFinite(const PackedBatch& batch,
                         const std::vector<Sample>& samples,
                         const std::vector<float>& log_probs) {
  for (size_t i = 0; i < log_probs.size(); ++i) {
    TANDEM_RETURN_IF_ERROR(CheckFiniteLogProb(ScoredSample(batch, samples, i),
                                              batch.scored_response[i], log_probs[i], "trainer"));
  }
  return absl::OkStatus();
}

LossTokens TokensOf(const PackedBatch& batch,
                    const std::vector<Sample>& samples,
                    const MiniBatchRequest& request,
                    const TokenScores& scores) {
  LossTokens tokens;
  tokens.log_probs = scores.log_probs;
  tokens.entropy = scores.entropy;
  tokens.num_rows = static_cast<int64_t>(batch.sequences.size());
  for (size_t i = 0; i < scores.log_probs.size(); ++i) {
    const auto response = static_cast<size_t>(batch.scored_response[i]);
    const Sample& sample = ScoredSample(batch, samples, i);
    const std::vector<float>& old =
        request.recomputed_old_log_probs ? sample.old_log_probs : sample.log_probs;
    tokens.old_log_probs.push_back(old[response]);
    tokens.advantages.push_back(sample.advantages[response]);
    tokens.rows.push_back(batch.scored_sequence[i]);
    if (request.loss.use_kl_loss) tokens.ref_log_probs.push_back(sample.ref_log_probs[response]);
  }
  return tokens;
}

struct PackedPass {
  std::vector<PackedBatch> batches;  // as many on every rank, the last ones maybe empty
  Keep keep = Keep::kNothing;
};

// No batch is larger, nor is `largest`.
BatchShape LargestShape(const std::vector<PackedBatch>& batches, BatchShape largest) {
  for (const PackedBatch& batch : batches) {
    const BatchShape shape = ShapeOf(batch);
    largest.rows = std::max(largest.rows, shape.rows);
    largest.scored = std::max(largest.scored, shape.scored);
    largest.kv_blocks = std::max(largest.kv_blocks, shape.kv_blocks);
  }
  return largest;
}

// Packs, agrees with the other ranks on the number of micro-batches, takes the memory.
absl::StatusOr<PackedPass> BeginPass(const PassParts& parts,
                                     const PassOptions& options,
                                     const std::vector<Sample>& samples,
                                     const absl::Status& checked) {
  PackedPass pass;
  absl::Status status = checked;
  if (status.ok()) {
    absl::StatusOr<std::vector<PackedBatch>> packed = PackSamples(samples, options.limits);
    status = packed.status();
    if (packed.ok()) pass.batches = *std::move(packed);
  }
  if (status.ok()) {
    const BatchShape largest = LargestShape(pass.batches, options.largest);
    if (parts.gradients != nullptr) {
      pass.keep = KeepForBackward(parts.loop->spec(), parts.loop->element_bytes(), largest,
                                  options.recompute, options.activation_budget_bytes);
    }
    status = parts.loop->Begin(largest, pass.keep);
  }
  TANDEM_ASSIGN_OR_RETURN(const std::vector<int64_t> counts,
                          Agree(*parts.communicator, status, "packing samples",
                                static_cast<int64_t>(pass.batches.size())));
  pass.batches.resize(static_cast<size_t>(*std::max_element(counts.begin(), counts.end())));
  return pass;
}

absl::Status TrainMicroBatch(const PassParts& parts,
                             const MiniBatchRequest& request,
                             const std::vector<Sample>& samples,
                             const PackedBatch& batch,
                             Totals& totals,
                             absl::Status& finite,
                             MiniBatchReport& report) {
  const absl::Time start = absl::Now();
  TANDEM_ASSIGN_OR_RETURN(const TokenScores scores, parts.loop->Forward(batch, *parts.weights));
  finite.Update(CheckFinite(batch, samples, scores.log_probs));
  if (request.compare_log_probs) {
    CompareLogProbs(batch, samples, scores.log_probs, report.comparison);
  }
  LossResult loss;
  if (batch.scored() > 0) {
    LossScale scale;
    scale.mode = request.loss_agg_mode;
    scale.batch_tokens = request.global_tokens;
    scale.batch_samples = request.global_samples;
    TANDEM_ASSIGN_OR_RETURN(
        loss, ComputePolicyLoss(TokensOf(batch, samples, request, scores), request.loss, scale));
    Add(loss, totals);
  }
  const absl::Time middle = absl::Now();
  TANDEM_RETURN_IF_ERROR(parts.loop->Backward(batch, *parts.weights, *parts.gradients,
                                              loss.grad_log_probs, loss.grad_entropy));
  report.tokens += batch.rows();
  report.forward_seconds += absl::ToDoubleSeconds(middle - start);
  report.backward_seconds += absl::ToDoubleSeconds(absl::Now() - middle);
  return absl::OkStatus();
}

absl::StatusOr<MiniBatchReport> TrainBatches(const PassParts& parts,
                                             const PackedPass& pass,
                                             const MiniBatchRequest& request,
                                             const std::vector<Sample>& samples) {
  MiniBatchReport report;
  report.micro_batches = static_cast<int64_t>(pass.batches.size());
  report.recompute = pass.keep == Keep::kLayerInputs;
  Totals totals;
  absl::Status finite;  // told after the collectives, in which the other ranks wait for this one
  for (const PackedBatch& batch : pass.batches) {
    TANDEM_RETURN_IF_ERROR(TrainMicroBatch(parts, request, samples, batch, totals, finite, report));
  }
  const absl::Time start = absl::Now();
  TANDEM_RETURN_IF_ERROR(parts.gradients->Finish());
  TANDEM_RETURN_IF_ERROR(Agree(*parts.communicator, finite, "checking log-probs").status());
  report.backward_seconds += absl::ToDoubleSeconds(absl::Now() - start);
  static_assert(sizeof(Totals) % sizeof(double) == 0);
  TANDEM_RETURN_IF_ERROR(parts.communicator->AllReduceSum(reinterpret_cast<double*>(&totals),
                                                          sizeof(Totals) / sizeof(double)));
  report.metrics = Metrics(totals, request.loss);
  return report;
}

}  // namespace

absl::StatusOr<MiniBatchReport> TrainMiniBatch(const PassParts& parts,
                                               const PassOptions& options,
                                               const MiniBatchRequest& request,
                                               const std::vector<Sample>& samples) {
  TANDEM_ASSIGN_OR_RETURN(const PackedPass pass,
                          BeginPass(parts, options, samples, CheckLogProbs(samples, request)));
  return TrainBatches(parts, pass, request, samples);
}

absl::StatusOr<LogProbsBySample> ScoreSamples(const PassParts& parts,
                                              const PassOptions& options,
                                              const std::vector<Sample>& samples,
                                              LogProbsBySample* sum_pi_squared) {
  TANDEM_ASSIGN_OR_RETURN(const PackedPass pass,
                          BeginPass(parts, options, samples, absl::OkStatus()));
  LogProbsBySample result;
  for (const Sample& sample : samples) {
    result[sample.sample_id].assign(static_cast<size_t>(sample.response_tokens()), 0.0f);
  }
  if (sum_pi_squared != nullptr) *sum_pi_squared = result;
  absl::Status finite;
  for (const PackedBatch& batch : pass.batches) {
    TANDEM_ASSIGN_OR_RETURN(const TokenScores scores,
                            parts.loop->Forward(batch, *parts.weights, sum_pi_squared != nullptr));
    finite.Update(CheckFinite(batch, samples, scores.log_probs));
    for (size_t i = 0; i < scores.log_probs.size(); ++i) {
      const uint64_t id = ScoredSample(batch, samples, i).sample_id;
      const auto token = static_cast<size_t>(batch.scored_response[i]);
      result[id][token] = scores.log_probs[i];
      if (sum_pi_squared != nullptr) (*sum_pi_squared)[id][token] = scores.sum_pi_squared[i];
    }
  }
  TANDEM_RETURN_IF_ERROR(Agree(*parts.communicator, finite, "checking log-probs").status());
  return result;
}

}  // namespace tandem
