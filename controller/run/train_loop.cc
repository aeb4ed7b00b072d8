#include "controller/run/train_loop.h"

#include <iterator>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "common/base/clock.h"
#include "common/base/disk_refusal.h"
#include "common/base/log.h"
#include "common/base/progress.h"
#include "common/base/status.h"
#include "controller/step/advantages.h"
#include "controller/step/correction.h"
#include "controller/step/dynamic_sampling.h"
#include "controller/step/mini_batches.h"
#include "controller/step/scoring.h"
#include "controller/step/step_metrics.h"
#include "controller/step/summary/group_metrics.h"
#include "controller/step/summary/histograms.h"
#include "controller/store/checkpoint_index.h"
#include "controller/store/run_store.h"
#include "controller/store/time_stamp.h"
#include "controller/workers/trainer_calls.h"

namespace tandem {

TrainLoop::TrainLoop(const StepContext& context,
                     const TrainOptions& options,
                     RunModes modes,
                     RunControl& control)
    : context_(context),
      options_(options),
      modes_(std::move(modes)),
      control_(control),
      recovery_(context_, options_),
      saver_(context_, options_, position_),
      training_(context_,
                options_,
                &position_,
                saver_,
                [this](StepBatch& batch) { return modes_.generation->BeforeUpdate(batch); }),
      weights_(context_, options_, position_, recovery_),
      length_(options_.limit, options_.total_steps),
      validation_(context_, options_, position_, control_, length_),
      checkpointer_({.context = context_,
                     .options = options_,
                     .position = position_,
                     .length = length_,
                     .generation = *modes_.generation,
                     .recovery = recovery_,
                     .saver = saver_}) {}

absl::Status TrainLoop::Run(const std::string& checkpoint,
                            const std::function<absl::Status()>& take_over) {
  const absl::StatusOr<RunPosition> started = recovery_.Start(checkpoint);
  if (Stopped(started.status())) return absl::OkStatus();
  TANDEM_ASSIGN_OR_RETURN(position_, started);
  recovery_.WarnOfMoments();
  checkpointer_.StartFrom(checkpoint);
  TANDEM_RETURN_IF_ERROR(RestoreCarriedGroups(checkpoint));
  TANDEM_RETURN_IF_ERROR(RestoreLength(checkpoint));
  if (take_over) TANDEM_RETURN_IF_ERROR(take_over());
  TANDEM_RETURN_IF_ERROR(Rewind(checkpoint.empty() ? -1 : position_.finished_steps));
  SetLogStep(position_.finished_steps);
  SetLogVersion(position_.version);
  control_.OnStarted(position_.finished_steps, position_.version);
  if (options_.val_before_train && position_.finished_steps == 0) {
    TANDEM_RETURN_IF_ERROR(validation_.Validate());
  }
  const absl::Status trained = Train();
  const absl::Status finished = Finish();
  return trained.ok() ? finished : trained;
}

absl::Status TrainLoop::Train() {
  const WorkStep watched("train loop");  // by LoopWatch
  while (validation_.Due() || control_.WaitForNext() == RunControl::Next::kStep) {
    const RunPosition before = position_;
    absl::Status status;
    if (!validation_.Due()) status = TimedStep(position_.finished_steps + 1);
    if (status.ok()) {
      control_.OnStepDone(position_.finished_steps, position_.version, StepStage::kMade);
      status = AfterStep();
    }
    if (!status.ok()) {
      const absl::Status recovered = RecoverFrom(std::move(status), before);
      if (Stopped(recovered)) return absl::OkStatus();
      TANDEM_RETURN_IF_ERROR(recovered);
    }
    context_.budget.CloseIncident();
    control_.OnStepDone(position_.finished_steps, position_.version);
  }
  return control_.failure();
}

absl::Status TrainLoop::RecoverFrom(absl::Status status, const RunPosition& before) {
  control_.OnStepDone(before.finished_steps, before.version, StepStage::kFailed);
  if (position_.finished_steps == before.finished_steps) {
    // If no optimizer step has run, the trainers still hold the weights from the end of the last
    // step.
    consistent_ = position_.version == before.version;
    if (consistent_) position_ = before;
    modes_.generation->RollBackStep();
  }
  const absl::StatusOr<RunPosition> recovered = recovery_.Recover(std::move(status));
  if (Stopped(recovered.status())) {
    // A checkpoint now would fail, or hold the weights of another step than it names.
    consistent_ = consistent_ && recovery_.trainers_kept();
    return recovered.status();
  }
  TANDEM_ASSIGN_OR_RETURN(position_, recovered);
  TANDEM_RETURN_IF_ERROR(RestoreCarriedGroups(checkpointer_.newest()));
  consistent_ = true;
  return Rewind(position_.finished_steps);
}

bool TrainLoop::Stopped(const absl::Status& status) const {
  return IsPeerFailure(status) && control_.stop_now();
}

absl::Status TrainLoop::RestoreCarriedGroups(const std::string& checkpoint) {
  absl::Status restored = modes_.generation->Restore(checkpoint, position_.finished_steps);
  generation_refused_ = !restored.ok();
  return restored;
}

absl::Status TrainLoop::TimedStep(int64_t step) {
  const Instant begin = context_.clock.Now();
  const absl::Duration waited = context_.disk.waited();
  absl::Status status = RunStep(step);
  // A wait for a disk says nothing of how long the other steps take.
  const absl::Duration waits = context_.disk.waited() - waited;
  length_.CountStep(context_.clock.Now() - begin - waits, status.ok());
  return status;
}

absl::Status TrainLoop::RunStep(int64_t step) {
  SetLogStep(step);
  StepBatch batch(step, context_.pool, context_.progress, context_.clock);
  batch.version = position_.version;
  batch.is_last = step >= length_.total_steps();
  TANDEM_RETURN_IF_ERROR(modes_.generation->Prepare(batch));
  TANDEM_RETURN_IF_ERROR(
      context_.disk.Until(SamplesNeed(), [&] { return context_.samples.BeginStep(step); }));

  TANDEM_RETURN_IF_ERROR(weights_.Verify(batch));
  TANDEM_RETURN_IF_ERROR(GenerateAndScore(batch));
  modes_.generation->StartBackground(batch);
  TANDEM_RETURN_IF_ERROR(
      modes_.placement.BeforeTraining(context_, batch, modes_.generation->background_running()));
  TANDEM_RETURN_IF_ERROR(weights_.CompareProbe(batch));
  TANDEM_RETURN_IF_ERROR(ComputeAllLogProbs(batch));
  TANDEM_RETURN_IF_ERROR(ComputeAllAdvantages(batch));
  TANDEM_RETURN_IF_ERROR(training_.Run(batch));
  const absl::Status ahead = modes_.generation->StopBackground(batch);
  modes_.placement.BeforeSync(context_, batch);
  if (IsPeerFailure(ahead)) return ahead;
  const absl::Status synced = weights_.SyncAndWake(batch);
  // If a trainer was lost, the run goes back to a checkpoint. After any other failure the trainers
  // hold the weights of a complete step, so the step is recorded before the run ends.
  if (IsPeerFailure(synced)) return synced;
  position_.finished_steps = step;
  position_.data = context_.prompts.Position();
  modes_.generation->CommitStep();
  const absl::Status recorded = Record(batch);
  // A checkpoint of this step would make its missing rows final; without one the step is repeated.
  if (IsDiskRefused(recorded)) consistent_ = false;
  TANDEM_RETURN_IF_ERROR(recorded);
  return synced.ok() ? ahead : synced;
}

DiskNeed TrainLoop::SamplesNeed() const {
  return {
      .what = "samples", .folder = options_.run_dir, .bytes = context_.samples.held_back_bytes()};
}

absl::Status TrainLoop::FlushMetrics() {
  return context_.disk.Until({.what = "metrics", .folder = options_.run_dir},
                             [this] { return context_.tracker.Flush(); });
}

absl::Status TrainLoop::GenerateAndScore(StepBatch& batch) {
  DynamicSampling sampling(options_.filter_groups, options_.train_batch_size);
  while (true) {
    TANDEM_RETURN_IF_ERROR(modes_.generation->Generate(batch, sampling.missing()));
    batch.phases.Begin("score");
    TANDEM_RETURN_IF_ERROR(RewardSamples(context_.text, context_.reward, context_.samples, batch));
    if (!options_.filter_groups.enable) break;
    const absl::Status filtered = sampling.Filter(context_.samples, batch);
    if (absl::IsOutOfRange(filtered)) {
      sampling.Report(batch.facts);
      return saver_.SaveWith(batch, filtered, sampling.TakeBack(context_.samples, batch));
    }
    TANDEM_RETURN_IF_ERROR(filtered);
    LogInfo("dynamic sampling: {}", sampling.ProgressText());
    if (sampling.full()) break;
  }
  if (options_.filter_groups.enable) {
    sampling.Report(batch.facts);
    batch.dropped = sampling.TakeDropped(batch.prompts);
  }
  batch.tail.Report(options_.tail, batch.facts.trainer);
  if (options_.greedy_baselines) {
    TANDEM_ASSIGN_OR_RETURN(batch.baseline_rewards, batch.baselines.Score(context_.reward));
  }
  AverageRewardTerms(batch);
  return absl::OkStatus();
}

absl::Status TrainLoop::ComputeAllLogProbs(StepBatch& batch) {
  PlanMiniBatches(options_, batch.step, 0, context_.pool.topology().trainers, context_.samples);
  if (options_.recompute_old_log_probs) {
    batch.phases.Begin("old_log_prob");
    TANDEM_ASSIGN_OR_RETURN(
        batch.comparisons,
        ComputeLogProbs(context_.pool, ScoredPolicy::kCurrent, batch.step, batch));
  }
  if (options_.need_reference) {
    batch.phases.Begin("reference");
    TANDEM_RETURN_IF_ERROR(
        ComputeLogProbs(context_.pool, ScoredPolicy::kReference, batch.step, batch).status());
  }
  return absl::OkStatus();
}

absl::Status TrainLoop::ComputeAllAdvantages(StepBatch& batch) {
  batch.phases.Begin("advantage");
  TANDEM_RETURN_IF_ERROR(CorrectRollout(options_, context_.samples, batch));
  TANDEM_RETURN_IF_ERROR(ComputeAdvantages(options_, position_.kl_coef, context_.samples, batch));
  if (options_.kl_in_reward) {
    position_.kl_coef = NextKlCoef(options_.kl_control, position_.kl_coef,
                                   batch.facts.trainer[kRewardKl], std::ssize(batch.records));
  }
  return absl::OkStatus();
}

std::map<std::string, Histogram> TrainLoop::HistogramsOrNone(
    int64_t step, const std::vector<SampleMeta>& metas, const std::vector<SampleRecord>& records) {
  auto histograms = StepHistograms(context_.samples, metas, records);
  if (histograms.ok()) return *std::move(histograms);
  // They are shown only: the step is made, and is recorded without them.
  LogWarn("no distributions of step {}: {}", step, std::string(histograms.status().message()));
  return {};
}

absl::Status TrainLoop::RecordSamples(StepBatch& batch, std::vector<SampleRecord>& samples) {
  samples.reserve(batch.records.size() + batch.dropped.size());
  for (auto& [id, record] : batch.records) samples.push_back(std::move(record));
  const size_t trained = samples.size();
  std::move(batch.dropped.begin(), batch.dropped.end(), std::back_inserter(samples));
  TANDEM_RETURN_IF_ERROR(context_.store.RecordSamples(batch.step, samples));
  samples.resize(trained);
  return absl::OkStatus();
}

absl::StatusOr<StepRecord> TrainLoop::MakeRecord(StepBatch& batch) {
  batch.phases.Begin("record");
  const std::string index = saver_.SamplesIndex(batch);
  TANDEM_RETURN_IF_ERROR(
      context_.disk.Until(SamplesNeed(), [&] { return context_.samples.Flush(index); }));
  TANDEM_RETURN_IF_ERROR(saver_.SaveDue(batch));
  const std::vector<SampleMeta> metas = context_.samples.Metas();
  std::vector<SampleRecord> samples;
  TANDEM_RETURN_IF_ERROR(RecordSamples(batch, samples));
  batch.facts.trainer.merge(GroupMetrics(metas, samples));
  StepRecord record{.step = batch.step,
                    .version = position_.version,
                    .groups = GroupsOf(samples),
                    .histograms = HistogramsOrNone(batch.step, metas, samples),
                    .updates = std::move(batch.updates),
                    .syncs = context_.weights.TakeSyncs()};
  if (context_.note_syncs) context_.note_syncs(record.syncs);
  if (context_.take_load) record.load = context_.take_load();
  record.groups.insert(record.groups.end(), batch.dropped_groups.begin(),
                       batch.dropped_groups.end());
  batch.details.samples = ContrastingSamples(samples);
  AddGenerationLoad(context_.pool.GenerationLoads(), batch.version, batch.details);
  batch.phases.End();

  batch.facts.step = batch.step;
  batch.facts.epoch = batch.prompts.front().epoch;
  batch.facts.ranks = context_.pool.topology().trainers;
  batch.facts.devices = context_.pool.topology().devices();
  batch.facts.max_response_tokens = options_.sampling.max_tokens;
  batch.facts.max_prompt_tokens = options_.max_prompt_tokens;
  if (const int64_t resent = context_.weights.TakeResendCount(); resent > 0) {
    batch.facts.trainer[kResentWeights] = static_cast<double>(resent);
  }
  record.metrics = StepMetrics(batch.facts, metas, batch.phases);
  record.phases = batch.phases.phases();
  record.finished_at = StampText(absl::ToUnixMicros(context_.clock.WallNow()));
  return record;
}

absl::Status TrainLoop::Record(StepBatch& batch) {
  TANDEM_ASSIGN_OR_RETURN(StepRecord record, MakeRecord(batch));
  TANDEM_RETURN_IF_ERROR(context_.store.RecordStep(record));
  context_.tracker.Log(batch.step, record.metrics);
  TANDEM_RETURN_IF_ERROR(FlushMetrics());
  context_.progress.OnStepDetails(record.step, batch.details);
  context_.progress.OnStep(record);
  checkpointer_.OnRecorded(std::move(record));
  return absl::OkStatus();
}

absl::Status TrainLoop::AfterStep() {
  const int64_t planned = length_.total_steps();
  const std::string told =
      length_.DecideTotal(position_.finished_steps, !context_.validation.empty());
  if (!told.empty()) context_.progress.OnMessage(told);
  TellIfShortened(planned);
  TANDEM_RETURN_IF_ERROR(checkpointer_.SaveIfDue());
  return validation_.Due() ? validation_.Validate() : absl::OkStatus();
}

bool TrainLoop::complete() const {
  return position_.finished_steps >= length_.total_steps() && checkpointer_.up_to_date() &&
         validation_.done();
}

absl::Status TrainLoop::Rewind(int64_t step) {
  TANDEM_RETURN_IF_ERROR(context_.store.UndoAfter(step, recovery_.generation()));
  const auto undone =
      context_.store.ListSteps({.limit = 1, .undone = true, .workers = false, .phases = false});
  if (undone.ok()) {
    control_.OnUndone(undone->empty() ? 0 : undone->back().step);
    TellUndone(step, *undone);
  } else {
    // They are only told to the user: no recovery ends for that.
    LogWarn("which steps after {} are undone cannot be read: {}", step,
            std::string(undone.status().message()));
    control_.OnUndone(0);
  }
  TANDEM_RETURN_IF_ERROR(RewindMetrics(step));
  return validation_.Reload();
}

void TrainLoop::TellUndone(int64_t step, const std::vector<StepRecord>& undone) {
  if (undone.empty() || undone.back().undone_by != recovery_.generation()) return;
  context_.progress.OnEvent(
      {.kind = "undone",
       .text = fmt::format("steps after {} up to {} are undone by generation {}", step,
                           undone.back().step, recovery_.generation()),
       .shown = false});
}

absl::Status TrainLoop::RewindMetrics(int64_t step) {
  absl::Status rewound = context_.disk.Until({.what = "metrics", .folder = options_.run_dir},
                                             [&] { return context_.tracker.Rewind(step); });
  if (rewound.ok() || IsDiskRefused(rewound)) return rewound;
  // Metrics never fail a run; the store has its own marks of what is undone.
  context_.progress.OnMessage(fmt::format(
      "warning: cannot remove the metrics of the undone steps after {} from the metrics files: {}",
      step, std::string(rewound.message())));
  return absl::OkStatus();
}

absl::Status TrainLoop::RestoreLength(const std::string& checkpoint) {
  if (checkpoint.empty()) return absl::OkStatus();
  TANDEM_ASSIGN_OR_RETURN(const ControllerState state, CheckpointIndex::ReadState(checkpoint));
  const int64_t before = length_.total_steps();
  length_.Restore(state.planned_steps);
  TellIfShortened(before);
  return absl::OkStatus();
}

void TrainLoop::TellIfShortened(int64_t before) {
  if (length_.total_steps() >= before) return;
  control_.Shorten(length_.total_steps());
  context_.progress.OnShortened(length_.total_steps());
}

absl::Status TrainLoop::Finish() {
  const absl::Status saved = consistent_ ? checkpointer_.SaveUnsaved() : absl::OkStatus();
  const absl::Status flushed = FlushMetrics();
  return saved.ok() ? flushed : saved;
}

}  // namespace tandem
