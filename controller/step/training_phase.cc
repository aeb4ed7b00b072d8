#include "controller/step/training_phase.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "common/base/log.h"
#include "common/base/status.h"
#include "controller/step/correction.h"
#include "controller/step/mini_batches.h"
#include "controller/step/step_metrics.h"
#include "controller/workers/trainer_calls.h"

namespace tandem {

namespace {

// The tokens that the step's weights sampled and that are scored, of a mini-batch (-1: of all).
// Log-probs of other tokens are of older weights, which nobody holds any more.
int64_t ComparableTokens(const SampleStore& samples, int64_t version, int64_t mini_batch) {
  int64_t tokens = 0;
  for (const SampleMeta& meta : samples.Metas()) {
    if (mini_batch >= 0 && meta.mini_batch != mini_batch) continue;
    for (const Segment& segment : meta.response_segments) {
      if (segment.trained && segment.weight_version >= version) tokens += segment.length;
    }
  }
  return tokens;
}

}  // namespace

absl::StatusOr<std::vector<ReportedComparison>> ComputeLogProbs(WorkerPool& pool,
                                                                ScoredPolicy policy,
                                                                int64_t step,
                                                                StepBatch& batch) {
  const auto compute = [&](TrainerClient& trainer, int, Done<LogProbsReply> done) {
    trainer.ComputeLogProbs(step, policy, std::move(done));
  };
  TANDEM_ASSIGN_OR_RETURN(auto replies, CallAllTrainers<LogProbsReply>(pool, compute));
  std::vector<ReportedComparison> comparisons;
  for (size_t rank = 0; rank < replies.size(); ++rank) {
    batch.phases.Report({WorkerRole::kTrainer, static_cast<int>(rank)}, replies[rank].report);
    comparisons.push_back(std::move(replies[rank].comparison));
  }
  return comparisons;
}

absl::Status CheckInterrupted(const StepContext& context) {
  if (!context.interrupted || !context.interrupted()) return absl::OkStatus();
  return absl::CancelledError("interrupted before the weights changed");
}

absl::Status TrainingPhase::Run(StepBatch& batch) {
  const int64_t version_before = position_.version;
  const UpdateCount count =
      CountUpdates(options_, batch.step, context_.pool.topology().trainers, context_.samples);
  if (count.updates > 0 && count.left_out > 0) SkipMiniBatches(batch, count.left_out);
  // A step that has only empty responses still makes its updates.
  const int64_t updates = count.updates > 0 ? count.updates : count.left_out;
  const double share = 1.0 / static_cast<double>(updates);
  TANDEM_RETURN_IF_ERROR(saver_.SaveIfDataLoss(batch, CompareBatch(batch)));
  for (int64_t epoch = 0; epoch < options_.epochs; ++epoch) {
    batch.epoch = epoch;
    batch.plan = PlanMiniBatches(options_, batch.step, epoch, context_.pool.topology().trainers,
                                 context_.samples);
    const std::vector<MiniBatch>& plan = batch.plan;
    for (const MiniBatch& mini : plan) {
      if (count.updates > 0 && mini.trained_tokens == 0) continue;
      batch.mini_batch = mini.index;
      const bool first = position_.version == version_before;
      if (first) TANDEM_RETURN_IF_ERROR(CheckInterrupted(context_));
      TANDEM_RETURN_IF_ERROR(saver_.SaveIfDataLoss(
          batch, ForwardBackward(batch, share,
                                 {.step = batch.step,
                                  .mini_batch = mini.index,
                                  .mini_batches = updates,
                                  .version = position_.version,
                                  .global_tokens = static_cast<double>(mini.trained_tokens),
                                  .global_samples = mini.samples,
                                  .compare_log_probs = first && options_.compare_log_probs &&
                                                       batch.comparisons.empty(),
                                  .first_update = first,
                                  .log_probs_compared = !batch.comparisons.empty()})));
      if (first) TANDEM_RETURN_IF_ERROR(CompareUpcoming(batch));
      // A step can be dropped up to here: the optimizer changes the weights.
      if (first) TANDEM_RETURN_IF_ERROR(CheckInterrupted(context_));
      TANDEM_RETURN_IF_ERROR(OptimizerStep(batch, share));
    }
  }
  AverageUpdateMetrics(batch.facts, updates);
  ReportRejectedUpdates(batch, updates);
  return absl::OkStatus();
}

// Skips mini-batches that have only rejected tokens or empty responses: an update would move the
// weights by momentum and weight decay alone.
void TrainingPhase::SkipMiniBatches(StepBatch& batch, int64_t mini_batches) {
  batch.facts.trainer[kSkippedUpdates] += static_cast<double>(mini_batches);
  context_.progress.OnMessage(
      fmt::format("step {}: no token of {} mini-batches is trained, as the rollout correction "
                  "rejected them or responses are empty; their updates are skipped",
                  batch.step, mini_batches));
}

absl::Status TrainingPhase::ForwardBackward(StepBatch& batch,
                                            double share,
                                            const ForwardBackwardCall& command) {
  batch.phases.Begin("train");
  const auto forward_backward = [&](TrainerClient& trainer, int, Done<ForwardBackwardReply> done) {
    trainer.ForwardBackward(command, std::move(done));
  };
  TANDEM_ASSIGN_OR_RETURN(const auto results,
                          CallAllTrainers<ForwardBackwardReply>(context_.pool, forward_backward));
  for (size_t rank = 0; rank < results.size(); ++rank) {
    batch.phases.Report({WorkerRole::kTrainer, static_cast<int>(rank)}, results[rank].report);
  }
  AddMiniBatchMetrics(batch.facts, results.front().metrics, share, command.first_update);
  batch.updates.push_back({.samples = command.global_samples,
                           .tokens = static_cast<int64_t>(command.global_tokens),
                           .metrics = results.front().metrics});
  if (command.compare_log_probs) {
    std::vector<ReportedComparison> comparisons;
    for (const ForwardBackwardReply& result : results) comparisons.push_back(result.comparison);
    const int64_t expected = ComparableTokens(context_.samples, batch.version, command.mini_batch);
    TANDEM_RETURN_IF_ERROR(CompareLogProbs(batch, comparisons, expected, batch.step));
  }
  return CountRejected(batch, results.front().metrics, command.mini_batches);
}

absl::Status TrainingPhase::OptimizerStep(StepBatch& batch, double share) {
  batch.phases.Begin("optimize");
  const int64_t next_version = position_.version + 1;
  const auto optimize = [&](TrainerClient& trainer, int, Done<OptimizerStepReply> done) {
    trainer.OptimizerStep(next_version, std::move(done));
  };
  // Even if the call fails, the trainers may hold changed weights.
  position_.version = next_version;
  TANDEM_ASSIGN_OR_RETURN(const auto steps,
                          CallAllTrainers<OptimizerStepReply>(context_.pool, optimize));
  for (size_t rank = 0; rank < steps.size(); ++rank) {
    batch.phases.Report({WorkerRole::kTrainer, static_cast<int>(rank)}, steps[rank].report);
  }
  SetLogVersion(next_version);
  batch.facts.trainer[kGradNorm] += steps.front().grad_norm * share;
  batch.facts.trainer[kLearningRate] = steps.front().learning_rate;
  UpdateRecord& update = batch.updates.back();
  update.version = next_version;
  update.metrics[kGradNorm] = steps.front().grad_norm;
  update.metrics[kLearningRate] = steps.front().learning_rate;
  if (steps.front().skipped) update.metrics[kSkippedUpdates] = 1;
  return RecordSkippedUpdate(batch, steps.front());
}

absl::Status TrainingPhase::CompareBatch(StepBatch& batch) {
  if (!options_.compare_log_probs) batch.comparisons.clear();  // the rollout recorded none
  if (!options_.compare_log_probs) return absl::OkStatus();
  batch.plan =
      PlanMiniBatches(options_, batch.step, 0, context_.pool.topology().trainers, context_.samples);
  const int64_t expected = ComparableTokens(context_.samples, batch.version, -1);
  if (batch.comparisons.empty()) {
    const bool in_part = batch.plan.size() > 1;
    if (!in_part || !options_.compare_all_log_probs || expected == 0) return absl::OkStatus();
    TANDEM_RETURN_IF_ERROR(CheckInterrupted(context_));
    batch.phases.Begin("compare");
    TANDEM_ASSIGN_OR_RETURN(
        batch.comparisons,
        ComputeLogProbs(context_.pool, ScoredPolicy::kCompared, batch.step, batch));
  }
  return CompareLogProbs(batch, batch.comparisons, expected, batch.step);
}

absl::Status TrainingPhase::CompareUpcoming(StepBatch& batch) {
  const absl::StatusOr<SampleStore*> waiting = before_update_(batch);
  if (!waiting.ok()) return saver_.SaveIfDataLoss(batch, waiting.status());
  if (*waiting == nullptr || !options_.compare_log_probs) return absl::OkStatus();
  SampleStore& samples = **waiting;
  UpcomingBatch upcoming{.step = batch.step + 1, .samples = samples};
  upcoming.plan =
      PlanMiniBatches(options_, upcoming.step, 0, context_.pool.topology().trainers, samples);
  batch.phases.Begin("compare");
  const auto comparisons =
      ComputeLogProbs(context_.pool, ScoredPolicy::kCompared, upcoming.step, batch);
  absl::Status compared = comparisons.status();
  if (compared.ok()) {
    const int64_t expected = ComparableTokens(samples, batch.version, -1);
    compared = CompareLogProbs(batch, *comparisons, expected, upcoming.step);
  }
  return saver_.SaveIfDataLoss(batch, upcoming, compared);
}

absl::Status TrainingPhase::CompareLogProbs(StepBatch& batch,
                                            const std::vector<ReportedComparison>& results,
                                            int64_t expected,
                                            int64_t step) {
  LogProbSummary comparison;
  ProbabilityComparison probabilities;
  double sum = 0;
  std::string differing;
  int shown = 0;
  for (const ReportedComparison& result : results) {
    comparison.compared += result.compared_tokens;
    comparison.identical += result.identical_tokens;
    sum += result.sum_abs_difference;
    probabilities.Join(result.probabilities);
    comparison.max_abs_difference =
        std::max(comparison.max_abs_difference, result.max_abs_difference);
    for (const ReportedMismatch& mismatch : result.mismatches) {
      if (shown++ >= 5) break;
      differing += fmt::format(
          "\n  sample {:#x}, position {}, weight version {}: rollout {:.9g}, trainer {:.9g}",
          mismatch.sample_id, mismatch.position, mismatch.weight_version, mismatch.rollout,
          mismatch.trainer);
    }
  }
  if (comparison.compared > 0) {
    comparison.mean_abs_difference = sum / static_cast<double>(comparison.compared);
  }
  batch.facts.log_probs.Join(comparison);
  context_.progress.OnLogProbs(batch.step, batch.facts.log_probs);
  // With recomputed log-probs, CorrectRollout has compared the complete step, not one mini-batch
  // alone.
  if (probabilities.tokens > 0 && !options_.recompute_old_log_probs) {
    AddFinite(probabilities.Metrics(), batch.facts);
  }
  if (comparison.compared != expected) {
    return MakeStatus(absl::StatusCode::kDataLoss,
                      "step {}: the trainers compared {} token log-probs with the rollouts', but "
                      "weights of version {} sampled {} tokens that are trained: tokens that "
                      "nobody compared may be wrong without notice. This is a defect of Tandem: "
                      "report it with the saved step",
                      step, comparison.compared, batch.version, expected);
  }
  // With a rollout correction, differences are expected.
  if (comparison.identical == comparison.compared || options_.correction.enabled()) {
    return absl::OkStatus();
  }
  return MakeStatus(absl::StatusCode::kDataLoss,
                    "step {}: {} of {} token log-probs identical between rollout and trainer, "
                    "max |Δ| {:.3g}; continuing would train off-policy. tandemctl "
                    "batch inspect shows the saved step, tandemctl parity --model DIR on every "
                    "machine whether its kernels agree; workers on CPUs of different instruction "
                    "sets need the same TANDEM_CPU_ISA. Largest differences:{}",
                    step, comparison.identical, comparison.compared, comparison.max_abs_difference,
                    differing);
}

absl::Status TrainingPhase::RecordSkippedUpdate(StepBatch& batch,
                                                const OptimizerStepReply& result) {
  if (!result.skipped) {
    position_.skipped_in_a_row = 0;
    return absl::OkStatus();
  }
  batch.facts.trainer[kSkippedUpdates] += 1;
  context_.progress.OnMessage(
      fmt::format("step {}: the gradient norm is not finite; this update was skipped", batch.step));
  const int64_t skipped = ++position_.skipped_in_a_row;
  if (skipped < std::max<int64_t>(1, options_.max_skipped_steps)) return absl::OkStatus();
  const std::string failure = fmt::format(
      "step {}: {} update{} in a row {} skipped, the last gradient norm is {} (mini-batch {} of "
      "{})",
      batch.step, skipped, skipped == 1 ? "" : "s", skipped == 1 ? "was" : "were", result.grad_norm,
      batch.mini_batch + 1, batch.plan.size());
  // The run ends with this failure even if saving the step fails.
  return MakeStatus(absl::StatusCode::kDataLoss,
                    "{}: the run makes no progress. Go back to an earlier checkpoint with a "
                    "smaller actor.optim.lr, or check rewards and model. {}",
                    failure, saver_.SaveFailed(batch, failure));
}

absl::Status TrainingPhase::CountRejected(StepBatch& batch,
                                          const std::map<std::string, double>& metrics,
                                          int64_t updates) {
  const auto masked = metrics.find(kMaskedFraction);
  if (masked == metrics.end() || masked->second < 1) return absl::OkStatus();
  double& rejected = batch.facts.trainer[kRejectedUpdates];
  rejected += 1;
  if (rejected < static_cast<double>(updates)) return absl::OkStatus();
  const RolloutCorrectionOptions& correction = options_.correction;
  const auto kl = metrics.find("rollout_corr/k3_kl");
  // InvalidArgument, as a recovery would fail in the same way.
  return InvalidArgument(
      "step {}: algorithm.rollout_correction.rollout_rs={} with rollout_rs_threshold={} rejected "
      "every token of all {} mini-batches in bypass mode, KL between rollout and trainers {:.3g}: "
      "nothing is left to train on. Raise the threshold, or find out why the two differ "
      "(tandemctl parity)",
      batch.step, correction.rollout_rs.value_or("null"),
      correction.rollout_rs_threshold.value_or("null"), updates,
      kl == metrics.end() ? NAN : kl->second);
}

void TrainingPhase::ReportRejectedUpdates(const StepBatch& batch, int64_t updates) {
  const auto rejected = batch.facts.trainer.find(kRejectedUpdates);
  if (rejected == batch.facts.trainer.end()) return;
  context_.progress.OnMessage(
      fmt::format("step {}: the rollout correction rejected every token of {:.0f} of {} updates, "
                  "which moved the weights by momentum, decay, KL loss and entropy alone",
                  batch.step, rejected->second, updates));
}

}  // namespace tandem
