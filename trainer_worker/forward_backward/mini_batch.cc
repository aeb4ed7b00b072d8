#include "trainer_worker/forward_backward/mini_batch.h"

#include <algorithm>

#include <absl/time/time.h>

#include "common/base/clock.h"
#include "common/base/status.h"
#include "common/comm/communicator.h"
#include "common/types/response_tokens.h"
#include "trainer_worker/forward_backward/loss_totals.h"
#include "trainer_worker/forward_backward/packing.h"
#include "trainer_worker/forward_backward/ratio_checks.h"
#include "trainer_worker/forward_backward/token_inputs.h"
#include "trainer_worker/losses/bypass_loss.h"

namespace tandem {
namespace {

absl::Status CheckLength(const Sample& sample,
                         size_t length,
                         const char* what,
                         const char* remedy) {
  const auto response = static_cast<size_t>(sample.response_tokens());
  if (length == response) return absl::OkStatus();
  return InvalidArgument("sample {:#x} has {} {} for {} response tokens; {}", sample.sample_id,
                         length, what, response, remedy);
}

absl::Status CheckOptional(const Sample& sample,
                           const std::vector<float>& values,
                           const char* what) {
  if (values.empty()) return absl::OkStatus();
  return CheckLength(sample, values.size(), what, "give one for every response token, or none");
}

absl::Status CheckRecordedLogProbs(const Sample& sample) {
  const char* remedy = "rollout.calculate_log_probs must be true";
  TANDEM_RETURN_IF_ERROR(CheckLength(sample, sample.log_probs.size(), "log-probs", remedy));
  return CheckLength(sample, sample.versions.size(), "versions", remedy);
}

absl::Status CheckRecordedLogProbs(const std::vector<Sample>& samples) {
  for (const Sample& sample : samples) {
    TANDEM_RETURN_IF_ERROR(CheckRecordedLogProbs(sample));
  }
  return absl::OkStatus();
}

// Whether the rollout returned log-probs: with rollout.calculate_log_probs=false no sample has any.
bool HaveRecordedLogProbs(const std::vector<Sample>& samples) {
  return std::any_of(samples.begin(), samples.end(),
                     [](const Sample& sample) { return !sample.log_probs.empty(); });
}

absl::Status CheckLogProbs(const std::vector<Sample>& samples, const MiniBatchRequest& request) {
  const bool sampled = !request.recomputed_old_log_probs || request.compare_log_probs;
  for (const Sample& sample : samples) {
    TANDEM_RETURN_IF_ERROR(
        CheckLength(sample, sample.advantages.size(), "advantages", "compute them first"));
    TANDEM_RETURN_IF_ERROR(CheckOptional(sample, sample.is_weights, "importance weights"));
    TANDEM_RETURN_IF_ERROR(CheckOptional(sample, sample.mask, "mask entries"));
    if (sampled) TANDEM_RETURN_IF_ERROR(CheckRecordedLogProbs(sample));
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

// Writes a micro-batch's values to the places of its scored tokens.
void Take(const PackedBatch& batch,
          const std::vector<Sample>& samples,
          const std::vector<float>& values,
          LogProbsBySample& taken) {
  for (size_t i = 0; i < values.size(); ++i) {
    const uint64_t id = ScoredSample(batch, samples, i).sample_id;
    taken[id][static_cast<size_t>(batch.scored_response[i])] = values[i];
  }
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
    tokens.old_log_probs.push_back(OldLogProbs(sample, request)[response]);
    tokens.advantages.push_back(sample.advantages[response]);
    tokens.rows.push_back(batch.scored_sequence[i]);
    tokens.mask.push_back(IsCounted(sample, response) ? 1.0f : 0.0f);
    tokens.is_weights.push_back(sample.is_weights.empty() ? 1.0f : sample.is_weights[response]);
    tokens.stale.push_back(IsStale(sample, response, request) ? 1 : 0);
    if (request.loss.use_kl_loss) tokens.ref_log_probs.push_back(sample.ref_log_probs[response]);
  }
  return tokens;
}

struct PackedPass {
  std::vector<PackedBatch> batches;  // as many on every rank; the last ones may be empty
  Keep keep = Keep::kNothing;
};

// Returns the componentwise maximum of `largest` and the shapes of all batches.
BatchShape LargestShape(const std::vector<PackedBatch>& batches, BatchShape largest) {
  for (const PackedBatch& batch : batches) {
    const BatchShape shape = ShapeOf(batch);
    largest.rows = std::max(largest.rows, shape.rows);
    largest.scored = std::max(largest.scored, shape.scored);
    largest.kv_blocks = std::max(largest.kv_blocks, shape.kv_blocks);
  }
  return largest;
}

// Packs the samples, agrees with the other ranks on the number of micro-batches, and allocates
// memory.
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

LossScale ScaleOf(const MiniBatchRequest& request) {
  return {.mode = request.loss_agg_mode,
          .batch_tokens = request.global_tokens,
          .batch_samples = request.global_samples,
          .loss_scale_factor = request.loss_scale_factor};
}

// A mini-batch, run micro-batch by micro-batch.
class MiniBatchPass {
 public:
  MiniBatchPass(const PassParts& parts,
                double dropout,
                const MiniBatchRequest& request,
                const std::vector<Sample>& samples,
                LogProbsBySample* differing)
      : parts_(parts),
        drop_(dropout),
        request_(request),
        samples_(samples),
        differing_(differing) {}

  absl::StatusOr<MiniBatchReport> Train(const PackedPass& pass);

 private:
  absl::Status Select(const std::vector<PackedBatch>& batches);
  // A forward pass applies dropout only for training, where Backward may follow.
  enum class Use { kTrain, kScore };
  absl::StatusOr<TokenScores> Forward(const PackedBatch& batch, Use use);
  // Compares log-probs with the rollout's, and checks that fresh tokens have a ratio of 1.
  void Compare(const PackedBatch& batch, const std::vector<float>& log_probs);
  // With dropout: calls Compare with log-probs of the batch without dropout, if anything is
  // compared.
  absl::Status CompareUndropped(const PackedBatch& batch);
  absl::StatusOr<LossResult> Loss(const PackedBatch& batch,
                                  const TokenScores& scores,
                                  const std::vector<uint8_t>& selected);
  absl::Status TrainMicroBatch(const PackedBatch& batch, const std::vector<uint8_t>& selected);
  // Keeps the log-probs that `differing` may receive.
  void Keep(const PackedBatch& batch, const std::vector<float>& log_probs);
  bool Differs() const;
  void AddToCorrection(const PackedBatch& batch, const LossTokens& tokens);
  absl::Status ReduceMetrics();
  // True if the rollout comparison makes the ratio check redundant; the controller then reports the
  // tokens of every rank. After a scoring pass the check shows that the training pass has the same
  // bits, unless differences from the rollout are tolerated.
  bool compared() const {
    const bool measured =
        request_.compare_log_probs || (request_.log_probs_compared && request_.tolerate_mismatch);
    return measured && !request_.recomputed_old_log_probs;
  }

  const PassParts& parts_;
  const double drop_;
  const MiniBatchRequest& request_;
  const std::vector<Sample>& samples_;
  LogProbsBySample* const differing_;
  LogProbsBySample log_probs_;
  BatchSelection selection_;
  std::vector<uint64_t> row_keys_;  // of the current micro-batch, with dropout
  AdapterDropout dropout_;
  LossTotals totals_;
  BypassMetrics correction_;
  OnPolicyRatioCheck on_policy_ratios_;
  OffPolicyTokenStats stale_;
  // Errors of log-probs, returned only after the collectives, in which the other ranks wait for
  // this rank.
  absl::Status finite_;
  MiniBatchReport report_;
};

absl::StatusOr<TokenScores> MiniBatchPass::Forward(const PackedBatch& batch, Use use) {
  const bool drops = use == Use::kTrain && drop_ > 0;
  if (drops) {
    row_keys_ = DropoutRowKeys(batch, samples_, request_.seed, request_.version);
    dropout_ = MakeAdapterDropout(drop_, row_keys_.data());
  }
  TANDEM_ASSIGN_OR_RETURN(TokenScores scores,
                          parts_.loop->Forward(batch, *parts_.weights, /*sum_pi_squared=*/false,
                                               drops ? &dropout_ : nullptr));
  finite_.Update(CheckFinite(batch, samples_, scores.log_probs));
  return scores;
}

absl::Status MiniBatchPass::Select(const std::vector<PackedBatch>& batches) {
  const Instant start = RealClock().Now();
  const auto score = [&](const PackedBatch& batch) -> absl::StatusOr<std::vector<float>> {
    TANDEM_ASSIGN_OR_RETURN(TokenScores scores, Forward(batch, Use::kScore));
    return std::move(scores.log_probs);
  };
  TANDEM_ASSIGN_OR_RETURN(
      selection_, SelectInBatches(batches, samples_, request_, score, *parts_.communicator));
  report_.forward_seconds += absl::ToDoubleSeconds(RealClock().Now() - start);
  return absl::OkStatus();
}

absl::StatusOr<LossResult> MiniBatchPass::Loss(const PackedBatch& batch,
                                               const TokenScores& scores,
                                               const std::vector<uint8_t>& selected) {
  if (batch.scored() == 0) return LossResult();
  LossTokens tokens = TokensOf(batch, samples_, request_, scores);
  tokens.selected = selected;
  TANDEM_ASSIGN_OR_RETURN(LossResult loss,
                          ComputePolicyLoss(tokens, request_.loss, ScaleOf(request_)));
  totals_.Add(loss);
  if (request_.loss.bypass) AddToCorrection(batch, tokens);
  return loss;
}

void MiniBatchPass::AddToCorrection(const PackedBatch& batch, const LossTokens& tokens) {
  for (size_t i = 0; i < tokens.log_probs.size(); ++i) {
    if (tokens.mask[i] == 0) continue;
    correction_.AddToken(ScoredSample(batch, samples_, i).sample_id, tokens.log_probs[i],
                         tokens.old_log_probs[i]);
  }
}

absl::Status MiniBatchPass::ReduceMetrics() {
  TANDEM_RETURN_IF_ERROR(totals_.Reduce(*parts_.communicator));
  report_.metrics = totals_.Metrics(request_.loss);
  TANDEM_RETURN_IF_ERROR(stale_.Reduce(*parts_.communicator));
  stale_.AddMetrics(report_.metrics);
  if (stale_.any()) totals_.AddCurrentRatios(report_.metrics);
  if (!request_.loss.bypass) return absl::OkStatus();
  for (const Sample& sample : samples_) correction_.AddSample(sample.sample_id);
  TANDEM_ASSIGN_OR_RETURN(auto metrics, correction_.Reduce(request_.loss.bypass->correction,
                                                           parts_.communicator->host()));
  report_.metrics.merge(metrics);
  return absl::OkStatus();
}

void MiniBatchPass::Compare(const PackedBatch& batch, const std::vector<float>& log_probs) {
  if (request_.compare_log_probs) {
    CompareLogProbs(batch, samples_, log_probs, request_.step_version, report_.comparison);
  }
  if (!compared()) on_policy_ratios_.Add(batch, samples_, log_probs, request_);
  Keep(batch, log_probs);
}

absl::Status MiniBatchPass::CompareUndropped(const PackedBatch& batch) {
  if (!request_.compare_log_probs && (!request_.first_update || request_.log_probs_compared)) {
    return absl::OkStatus();
  }
  if (request_.first_update && request_.recomputed_old_log_probs) {
    std::vector<float> recomputed;
    for (size_t i = 0; i < batch.scored_response.size(); ++i) {
      const auto response = static_cast<size_t>(batch.scored_response[i]);
      recomputed.push_back(ScoredSample(batch, samples_, i).old_log_probs[response]);
    }
    Compare(batch, recomputed);
    return absl::OkStatus();
  }
  TANDEM_ASSIGN_OR_RETURN(const TokenScores scores, Forward(batch, Use::kScore));
  Compare(batch, scores.log_probs);
  return absl::OkStatus();
}

absl::Status MiniBatchPass::TrainMicroBatch(const PackedBatch& batch,
                                            const std::vector<uint8_t>& selected) {
  const Instant start = RealClock().Now();
  if (drop_ > 0) TANDEM_RETURN_IF_ERROR(CompareUndropped(batch));
  TANDEM_ASSIGN_OR_RETURN(const TokenScores scores, Forward(batch, Use::kTrain));
  if (drop_ == 0) Compare(batch, scores.log_probs);
  stale_.Add(batch, samples_, scores.log_probs, request_);
  TANDEM_ASSIGN_OR_RETURN(const LossResult loss, Loss(batch, scores, selected));
  const Instant middle = RealClock().Now();
  TANDEM_RETURN_IF_ERROR(parts_.loop->Backward(batch, *parts_.weights, *parts_.gradients,
                                               loss.grad_log_probs, loss.grad_entropy));
  report_.tokens += batch.rows();
  report_.forward_seconds += absl::ToDoubleSeconds(middle - start);
  report_.backward_seconds += absl::ToDoubleSeconds(RealClock().Now() - middle);
  return absl::OkStatus();
}

void MiniBatchPass::Keep(const PackedBatch& batch, const std::vector<float>& log_probs) {
  if (differing_ == nullptr || !request_.first_update) return;
  for (size_t i = 0; i < log_probs.size(); ++i) {
    const Sample& sample = ScoredSample(batch, samples_, i);
    std::vector<float>& kept = log_probs_[sample.sample_id];
    kept.resize(static_cast<size_t>(sample.response_tokens()));
    kept[static_cast<size_t>(batch.scored_response[i])] = log_probs[i];
  }
}

bool MiniBatchPass::Differs() const {
  const LogProbComparison& rollout = report_.comparison;
  return !on_policy_ratios_.status().ok() ||
         (!request_.tolerate_mismatch && rollout.identical < rollout.compared);
}

absl::StatusOr<MiniBatchReport> MiniBatchPass::Train(const PackedPass& pass) {
  report_.micro_batches = static_cast<int64_t>(pass.batches.size());
  report_.recompute = pass.keep == Keep::kLayerInputs;
  TANDEM_RETURN_IF_ERROR(Select(pass.batches));
  for (size_t i = 0; i < pass.batches.size(); ++i) {
    TANDEM_RETURN_IF_ERROR(TrainMicroBatch(
        pass.batches[i], selection_.empty() ? std::vector<uint8_t>() : selection_[i]));
  }
  const Instant start = RealClock().Now();
  TANDEM_RETURN_IF_ERROR(parts_.gradients->Finish());
  finite_.Update(on_policy_ratios_.status());
  if (differing_ != nullptr && Differs()) *differing_ = std::move(log_probs_);
  TANDEM_RETURN_IF_ERROR(Agree(*parts_.communicator, finite_, "checking log-probs").status());
  report_.backward_seconds += absl::ToDoubleSeconds(RealClock().Now() - start);
  TANDEM_RETURN_IF_ERROR(ReduceMetrics());
  return report_;
}

}  // namespace

absl::StatusOr<MiniBatchReport> TrainMiniBatch(const PassParts& parts,
                                               const PassOptions& options,
                                               const MiniBatchRequest& request,
                                               const std::vector<Sample>& samples,
                                               LogProbsBySample* differing) {
  TANDEM_ASSIGN_OR_RETURN(const PackedPass pass,
                          BeginPass(parts, options, samples, CheckLogProbs(samples, request)));
  return MiniBatchPass(parts, options.dropout, request, samples, differing).Train(pass);
}

absl::StatusOr<LogProbsBySample> ScoreSamples(const PassParts& parts,
                                              const PassOptions& options,
                                              const std::vector<Sample>& samples,
                                              const ScoreRequest& request,
                                              ScoreExtras* extras) {
  const bool compares = request.compared_version.has_value() && HaveRecordedLogProbs(samples);
  TANDEM_ASSIGN_OR_RETURN(const PackedPass pass,
                          BeginPass(parts, options, samples,
                                    compares ? CheckRecordedLogProbs(samples) : absl::OkStatus()));
  LogProbsBySample result;
  for (const Sample& sample : samples) {
    result[sample.sample_id].assign(static_cast<size_t>(sample.response_tokens()), 0.0f);
  }
  if (request.sum_pi_squared) extras->sum_pi_squared = result;
  absl::Status finite;
  for (const PackedBatch& batch : pass.batches) {
    TANDEM_ASSIGN_OR_RETURN(const TokenScores scores,
                            parts.loop->Forward(batch, *parts.weights, request.sum_pi_squared));
    finite.Update(CheckFinite(batch, samples, scores.log_probs));
    if (compares) {
      CompareLogProbs(batch, samples, scores.log_probs, *request.compared_version,
                      extras->comparison);
    }
    Take(batch, samples, scores.log_probs, result);
    if (request.sum_pi_squared) {
      Take(batch, samples, scores.sum_pi_squared, extras->sum_pi_squared);
    }
  }
  TANDEM_RETURN_IF_ERROR(Agree(*parts.communicator, finite, "checking log-probs").status());
  return result;
}

}  // namespace tandem
