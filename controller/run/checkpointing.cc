// The parts of TrainLoop that run between steps and at the end: validation and checkpoints.
#include <utility>

#include "common/base/log.h"
#include "common/base/status.h"
#include "common/process/fault_injection.h"
#include "controller/run/train_loop.h"
#include "controller/step/phase_recorder.h"
#include "controller/workers/trainer_calls.h"

namespace tandem {

absl::Status TrainLoop::AfterStep() {
  const int64_t step = position_.finished_steps;
  const int64_t planned = length_.total_steps();
  const std::string told = length_.Settle(step, !context_.validation.empty());
  if (!told.empty()) context_.progress.OnMessage(told);
  TellIfShortened(planned);
  const bool last = step >= length_.total_steps();
  if (((options_.save_freq > 0 && step % options_.save_freq == 0) || last) && saved_step_ != step) {
    absl::Status saved = SaveCheckpoint();
    if (absl::IsResourceExhausted(saved) && !last) {
      // The run can continue: an older checkpoint still exists, and the next one may fit.
      context_.progress.OnMessage(
          fmt::format("no checkpoint of step {}: {}", step, std::string(saved.message())));
      saved = absl::OkStatus();
    }
    TANDEM_RETURN_IF_ERROR(saved);
  }
  return ValidationDue() ? EvaluateAndRecord() : absl::OkStatus();
}

bool TrainLoop::complete() const {
  return position_.finished_steps >= length_.total_steps() &&
         saved_step_ == position_.finished_steps &&
         (context_.validation.empty() || evaluated_.contains(position_.finished_steps));
}

bool TrainLoop::ValidationDue() const {
  const int64_t step = position_.finished_steps;
  if (context_.validation.empty() || step == 0 || control_.stop_now()) return false;
  const bool wanted =
      step >= length_.total_steps() || (options_.test_freq > 0 && step % options_.test_freq == 0);
  return wanted && !evaluated_.contains(step);
}

absl::Status TrainLoop::Rewind(int64_t step) {
  TANDEM_RETURN_IF_ERROR(context_.store.TruncateAfter(step));
  context_.tracker.Rewind(step);
  TANDEM_ASSIGN_OR_RETURN(const auto evaluations, context_.store.ListEvaluations());
  evaluated_.clear();
  for (const EvaluationRecord& evaluation : evaluations) {
    evaluated_.insert(evaluation.step);
    length_.ExpectValidation(absl::Seconds(evaluation.seconds));
  }
  return absl::OkStatus();
}

absl::Status TrainLoop::EvaluateAndRecord() {
  if (context_.validation.empty()) return absl::OkStatus();
  FaultPoint("evaluate");
  const absl::StatusOr<EvaluationRecord> record = EvaluateNow(
      {.samples = options_.validation_samples, .sampling = options_.validation_sampling});
  if (absl::IsCancelled(record.status()) && control_.stop_now()) return absl::OkStatus();
  TANDEM_RETURN_IF_ERROR(record.status());
  TANDEM_RETURN_IF_ERROR(context_.store.RecordEvaluation(*record));
  evaluated_.insert(record->step);
  length_.CountValidation(absl::Seconds(record->seconds));
  context_.tracker.Log(record->step, record->metrics);
  context_.progress.OnEvaluation(*record);
  return absl::OkStatus();
}

absl::StatusOr<EvaluationRecord> TrainLoop::EvaluateNow(EvaluationRequest request) {
  request.step = position_.finished_steps;
  request.version = position_.version;
  return Evaluate(context_, request);
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

absl::StatusOr<std::string> TrainLoop::CommitCheckpoint(const std::string& directory) {
  const int64_t step = position_.finished_steps;
  TANDEM_RETURN_IF_ERROR(modes_.generation->Save(directory, step));
  return context_.checkpoints.Commit(
      step,
      {.step = step,
       .version = position_.version,
       .data = position_.data,
       .store_step = step,
       .world_size = context_.pool.pairs(),
       .moments = options_.save_moments,
       .kl_coef = options_.kl_control.adaptive ? std::optional(position_.kl_coef) : std::nullopt,
       .skipped_in_a_row = position_.skipped_in_a_row,
       .planned_steps = length_.planned_steps(),
       .config_yaml = options_.config_yaml});
}

void TrainLoop::ForgetBeforeOldestCheckpoint() {
  const absl::Status forgotten =
      modes_.generation->ForgetBefore(context_.checkpoints.List().front().step);
  if (forgotten.ok()) return;
  // The checkpoint is complete, and a journal that is longer than necessary does no harm.
  context_.progress.OnMessage(
      fmt::format("the round journal was not shortened: {}", std::string(forgotten.message())));
}

absl::Status TrainLoop::SaveCheckpoint() {
  const int64_t step = position_.finished_steps;
  PhaseRecorder phases(step, context_.pool, context_.progress, context_.clock);
  phases.Begin("save");
  TANDEM_ASSIGN_OR_RETURN(const std::string directory, context_.checkpoints.Begin(step));
  const auto save = [&](TrainerClient& trainer, int) {
    return trainer.SaveState(directory, position_.version);
  };
  auto saved = CallAllTrainers<SaveReply>(context_.pool, save);
  FaultPoint("checkpoint");
  const absl::StatusOr<std::string> path =
      saved.ok() ? CommitCheckpoint(directory) : absl::StatusOr<std::string>(saved.status());
  if (!path.ok()) {
    context_.checkpoints.Abandon(step);
    return Annotate(path.status(), "checkpoint " + directory);
  }
  newest_checkpoint_ = *path;
  saved_step_ = step;
  recovery_.SetCheckpoint(*path);
  saver_.SetCheckpoint(*path);
  ForgetBeforeOldestCheckpoint();
  int64_t bytes = 0;
  for (size_t rank = 0; rank < saved->size(); ++rank) {
    bytes += (*saved)[rank].bytes;
    phases.Report({WorkerRole::kTrainer, static_cast<int>(rank)}, (*saved)[rank].report);
  }
  phases.End();
  context_.progress.OnMessage(
      fmt::format("checkpoint {} ({} MiB, {:.1f} s)", *path, bytes >> 20, phases.Seconds("save")));
  if (newest_.step != step) return absl::OkStatus();  // an earlier process recorded the step
  newest_.phases.push_back(phases.phases().front());
  return context_.store.RecordStep(newest_);
}

absl::Status TrainLoop::Finish() {
  absl::Status saved;
  if (consistent_ && position_.finished_steps > 0 && saved_step_ != position_.finished_steps) {
    saved = SaveCheckpoint();
  }
  context_.tracker.Flush();
  return saved;
}

}  // namespace tandem
