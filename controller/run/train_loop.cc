#include "controller/run/train_loop.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "common/base/log.h"
#include "common/base/status.h"
#include "controller/partial_rollout/round_runner.h"
#include "controller/step/advantages.h"
#include "controller/step/correction.h"
#include "controller/step/mini_batches.h"
#include "controller/step/scoring.h"
#include "controller/step/step_metrics.h"
#include "controller/store/run_store.h"
#include "controller/workers/trainer_calls.h"

namespace tandem {
TrainLoop::TrainLoop(RunParts parts,
                     TrainOptions options,
                     RunControl& control,
                     int64_t first_generation)
    : parts_(std::move(parts)),
      options_(std::move(options)),
      control_(control),
      recovery_(parts_, options_, first_generation) {}

absl::Status TrainLoop::Run(const std::string& checkpoint) {
  const absl::StatusOr<RunPosition> started = recovery_.Start(checkpoint);
  if (Stopped(started.status())) return absl::OkStatus();
  TANDEM_ASSIGN_OR_RETURN(position_, started);
  recovery_.WarnOfMoments();
  newest_checkpoint_ = checkpoint;
  TANDEM_RETURN_IF_ERROR(RestorePool(checkpoint));
  TANDEM_RETURN_IF_ERROR(RestoreLength(checkpoint));
  saved_step_ = position_.finished_steps;
  TANDEM_RETURN_IF_ERROR(Rewind(checkpoint.empty() ? -1 : position_.finished_steps));
  SetLogStep(position_.finished_steps);
  SetLogVersion(position_.version);
  control_.OnStarted(position_.finished_steps, position_.version);
  if (options_.val_before_train && position_.finished_steps == 0) {
    TANDEM_RETURN_IF_ERROR(EvaluateAndRecord());
  }
  const absl::Status trained = Train();
  const absl::Status finished = Finish();
  return trained.ok() ? finished : trained;
}

absl::Status TrainLoop::Train() {
  while (ValidationDue() || control_.WaitForNext() == RunControl::Next::kStep) {
    const RunPosition before = position_;
    absl::Status status;
    if (!ValidationDue()) status = TimedStep(position_.finished_steps + 1);
    if (status.ok()) status = AfterStep();
    if (!status.ok()) {
      if (position_.finished_steps == before.finished_steps) {
        // Without an optimizer step the trainers still hold the end of the step before.
        consistent_ = position_.version == before.version;
        if (consistent_) position_ = before;
        if (parts_.partial != nullptr) parts_.partial->pool().GoBack();
      }
      absl::StatusOr<RunPosition> recovered = recovery_.Recover(std::move(status));
      if (Stopped(recovered.status())) {
        // A checkpoint of what is left would fail, or hold another step than it says.
        consistent_ = consistent_ && recovery_.trainers_kept();
        return absl::OkStatus();
      }
      TANDEM_ASSIGN_OR_RETURN(position_, recovered);
      TANDEM_RETURN_IF_ERROR(RestorePool(newest_checkpoint_));
      consistent_ = true;
      TANDEM_RETURN_IF_ERROR(Rewind(position_.finished_steps));
    }
    parts_.budget.CloseIncident();
    control_.OnStepDone(position_.finished_steps, position_.version);
  }
  return control_.failure();
}

bool TrainLoop::Stopped(const absl::Status& status) const {
  return IsPeerFailure(status) && control_.stop_now();
}

absl::Status TrainLoop::RunStep(int64_t step) {
  SetLogStep(step);
  std::vector<Prompt> prompts;
  if (parts_.partial == nullptr) {
    TANDEM_ASSIGN_OR_RETURN(prompts, DrawPrompts(options_.train_batch_size));
  }
  StepBatch batch(step, std::move(prompts), parts_.pool, parts_.progress, parts_.clock);
  batch.version = position_.version;
  TANDEM_RETURN_IF_ERROR(parts_.samples.BeginStep(step));

  TANDEM_RETURN_IF_ERROR(VerifyWeights(batch));
  TANDEM_RETURN_IF_ERROR(GenerateAndScore(batch));
  // Ends with this function at the latest.
  const std::unique_ptr<Overlap> overlap = BeginOverlap(batch);
  if (overlap == nullptr) TANDEM_RETURN_IF_ERROR(SleepRollouts(batch));
  TANDEM_RETURN_IF_ERROR(CompareProbe(batch));
  TANDEM_RETURN_IF_ERROR(ComputeLogProbs(batch));
  batch.phases.Begin("advantage");
  TANDEM_RETURN_IF_ERROR(CorrectRollout(options_, parts_.samples, batch));
  TANDEM_RETURN_IF_ERROR(ComputeAdvantages(options_, position_.kl_coef, parts_.samples, batch));
  if (options_.kl_in_reward) {
    position_.kl_coef = NextKlCoef(options_.kl_control, position_.kl_coef,
                                   batch.facts.trainer[kRewardKl], std::ssize(batch.records));
  }
  TANDEM_RETURN_IF_ERROR(TrainOnBatch(batch));
  const absl::Status ahead = overlap == nullptr ? absl::OkStatus() : EndOverlap(*overlap, batch);
  if (IsPeerFailure(ahead)) return ahead;
  const absl::Status synced = SyncWeights(batch);
  // A trainer that is lost goes back to a checkpoint. After any other failure the trainers hold a
  // whole step, which is kept although the run ends.
  if (IsPeerFailure(synced)) return synced;
  position_.finished_steps = step;
  position_.data = parts_.prompts.Position();
  if (parts_.partial != nullptr) parts_.partial->pool().Mark();
  TANDEM_RETURN_IF_ERROR(Record(batch));
  return synced.ok() ? ahead : synced;
}

absl::StatusOr<std::vector<Prompt>> TrainLoop::DrawPrompts(int64_t count) {
  TANDEM_ASSIGN_OR_RETURN(auto prompts, parts_.prompts.NextBatch(count));
  if (prompts.front().epoch < kTrainEpochs) return prompts;
  return MakeStatus(absl::StatusCode::kOutOfRange,
                    "the training data has been passed over {} times, more than sample ids can "
                    "tell apart: give more data or end the run here",
                    kTrainEpochs);
}

absl::Status TrainLoop::ComputeLogProbs(StepBatch& batch) {
  PlanMiniBatches(options_, batch.step, 0, parts_.pool.pairs(), parts_.samples);
  for (const LogProbPolicy policy : {LogProbPolicy::kCurrent, LogProbPolicy::kReference}) {
    const bool wanted = policy == LogProbPolicy::kCurrent ? options_.recompute_old_log_probs
                                                          : options_.need_reference;
    if (!wanted) continue;
    batch.phases.Begin(policy == LogProbPolicy::kCurrent ? "old_log_prob" : "reference");
    TANDEM_RETURN_IF_ERROR(ComputeLogProbs(batch, policy));
  }
  return absl::OkStatus();
}

absl::Status TrainLoop::ComputeLogProbs(StepBatch& batch, LogProbPolicy policy) {
  const auto compute = [&](TrainerClient& trainer, int) {
    return trainer.ComputeLogProbs(batch.step, policy);
  };
  TANDEM_ASSIGN_OR_RETURN(const auto reports, CallAllTrainers<PhaseReport>(parts_.pool, compute));
  batch.phases.Report(WorkerRole::kTrainer, reports);
  return absl::OkStatus();
}

absl::Status TrainLoop::TrainOnBatch(StepBatch& batch) {
  const int64_t version_before = position_.version;
  const UpdateCount count = CountUpdates(options_, batch.step, parts_.pool.pairs(), parts_.samples);
  if (count.updates > 0 && count.left_out > 0) LeaveOut(batch, count.left_out);
  // A step of empty responses alone trains on nothing, as it always did.
  const int64_t updates = count.updates > 0 ? count.updates : count.left_out;
  const double share = 1.0 / static_cast<double>(updates);
  for (int64_t epoch = 0; epoch < options_.epochs; ++epoch) {
    batch.epoch = epoch;
    batch.plan = PlanMiniBatches(options_, batch.step, epoch, parts_.pool.pairs(), parts_.samples);
    const std::vector<MiniBatch>& plan = batch.plan;
    for (const MiniBatch& mini : plan) {
      if (count.updates > 0 && mini.trained_tokens == 0) continue;
      batch.mini_batch = mini.index;
      const bool first = position_.version == version_before;
      if (first) TANDEM_RETURN_IF_ERROR(CheckInterrupted());
      TANDEM_RETURN_IF_ERROR(WithStepSaved(
          batch, ForwardBackward(batch, share,
                                 {.step = batch.step,
                                  .mini_batch = mini.index,
                                  .mini_batches = updates,
                                  .version = position_.version,
                                  .global_tokens = static_cast<double>(mini.trained_tokens),
                                  .global_samples = mini.samples,
                                  .compare_log_probs = first && options_.compare_log_probs,
                                  .fresh = first})));
      // The last moment to drop the step: from here on the weights are others.
      if (first) TANDEM_RETURN_IF_ERROR(CheckInterrupted());
      TANDEM_RETURN_IF_ERROR(OptimizerStep(batch, share));
    }
  }
  AverageOverThoseThatHave(batch.facts, updates);
  TellOfRejected(batch, updates);
  return absl::OkStatus();
}

// Of nothing but rejected tokens or empty responses: an update would move the weights by momentum
// and decay alone.
void TrainLoop::LeaveOut(StepBatch& batch, int64_t mini_batches) {
  batch.facts.trainer[kSkippedUpdates] += static_cast<double>(mini_batches);
  parts_.progress.OnMessage(
      fmt::format("step {}: no token of {} mini-batches is trained, as the rollout correction "
                  "rejected them or responses are empty; their updates are left out",
                  batch.step, mini_batches));
}

absl::Status TrainLoop::CheckInterrupted() const {
  if (!parts_.interrupted || !parts_.interrupted()) return absl::OkStatus();
  return absl::CancelledError("interrupted before the weights changed");
}

absl::Status TrainLoop::ForwardBackward(StepBatch& batch,
                                        double share,
                                        const ForwardBackwardCommand& command) {
  batch.phases.Begin("train");
  const auto forward_backward = [&](TrainerClient& trainer, int) {
    return trainer.ForwardBackward(command);
  };
  TANDEM_ASSIGN_OR_RETURN(const auto results,
                          CallAllTrainers<ForwardBackwardResult>(parts_.pool, forward_backward));
  for (size_t rank = 0; rank < results.size(); ++rank) {
    batch.phases.Report({WorkerRole::kTrainer, static_cast<int>(rank)}, results[rank].report);
  }
  AddMiniBatchMetrics(batch.facts, results.front().metrics, share, command.fresh);
  if (command.compare_log_probs) TANDEM_RETURN_IF_ERROR(CompareLogProbs(batch, results));
  return CountRejected(batch, results.front().metrics, command.mini_batches);
}

absl::Status TrainLoop::OptimizerStep(StepBatch& batch, double share) {
  batch.phases.Begin("optimize");
  const int64_t next_version = position_.version + 1;
  const auto optimize = [&](TrainerClient& trainer, int) {
    return trainer.OptimizerStep(next_version);
  };
  // Whatever happens now, the trainers may hold other weights than before.
  position_.version = next_version;
  TANDEM_ASSIGN_OR_RETURN(const auto steps,
                          CallAllTrainers<OptimizerStepResult>(parts_.pool, optimize));
  for (size_t rank = 0; rank < steps.size(); ++rank) {
    batch.phases.Report({WorkerRole::kTrainer, static_cast<int>(rank)}, steps[rank].report);
  }
  SetLogVersion(next_version);
  batch.facts.trainer["actor/grad_norm"] += steps.front().grad_norm * share;
  batch.facts.trainer["actor/lr"] = steps.front().learning_rate;
  return CountSkipped(batch, steps.front());
}

absl::Status TrainLoop::CompareLogProbs(StepBatch& batch,
                                        const std::vector<ForwardBackwardResult>& results) {
  LogProbComparison& comparison = batch.facts.log_probs;
  ProbabilityComparison probabilities;
  double sum = 0;
  std::string differing;
  int shown = 0;
  for (const ForwardBackwardResult& result : results) {
    comparison.compared += result.compared_tokens;
    comparison.identical += result.identical_tokens;
    sum += result.sum_abs_difference;
    probabilities.Join(result.probabilities);
    comparison.max_abs_difference =
        std::max(comparison.max_abs_difference, result.max_abs_difference);
    for (const LogProbMismatch& mismatch : result.mismatches) {
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
  parts_.progress.OnLogProbs(batch.step, comparison);
  // With recomputed log-probs the whole step was compared, not this mini-batch alone.
  if (probabilities.tokens > 0 && !options_.recompute_old_log_probs) {
    AddFinite(probabilities.Metrics(), batch.facts);
  }
  // Who asks for the correction of differences has noticed them.
  if (comparison.identical == comparison.compared || options_.correction.enabled()) {
    return absl::OkStatus();
  }
  return MakeStatus(absl::StatusCode::kDataLoss,
                    "step {}: {} of {} token log-probs identical between rollout and trainer, "
                    "max |Δ| {:.3g}; training on would be off-policy without notice. tandemctl "
                    "batch inspect shows the saved step, tandemctl parity --model DIR on every "
                    "machine whether its kernels agree; workers on CPUs of different instruction "
                    "sets want the same TANDEM_CPU_ISA. The most different:{}",
                    batch.step, comparison.identical, comparison.compared,
                    comparison.max_abs_difference, differing);
}

absl::Status TrainLoop::Record(StepBatch& batch) {
  batch.phases.Begin("record");
  TANDEM_RETURN_IF_ERROR(SaveDueBatch(batch));
  const std::vector<SampleMeta> metas = parts_.samples.Metas();
  std::vector<SampleRecord> samples;
  samples.reserve(batch.records.size());
  for (auto& [id, record] : batch.records) samples.push_back(std::move(record));
  TANDEM_RETURN_IF_ERROR(parts_.store.RecordSamples(batch.step, samples));
  batch.phases.End();

  batch.facts.step = batch.step;
  batch.facts.epoch = batch.prompts.front().epoch;
  batch.facts.ranks = parts_.pool.pairs();
  batch.facts.max_response_tokens = options_.sampling.max_tokens;
  batch.facts.max_prompt_tokens = options_.max_prompt_tokens;
  if (const int64_t resent = parts_.weights.TakeResent(); resent > 0) {
    batch.facts.trainer[kResentWeights] = static_cast<double>(resent);
  }
  StepRecord record{
      .step = batch.step,
      .version = position_.version,
      .metrics = StepMetrics(batch.facts, metas, batch.phases),
      .phases = batch.phases.phases(),
      .finished_at = absl::FormatTime(absl::RFC3339_sec, parts_.clock.Now(), absl::UTCTimeZone())};
  TANDEM_RETURN_IF_ERROR(parts_.store.RecordStep(record));
  parts_.tracker.Log(batch.step, record.metrics);
  parts_.progress.OnStep(record);
  newest_ = std::move(record);
  return absl::OkStatus();
}

}  // namespace tandem
