#include "controller/run/checkpointer.h"

#include <optional>
#include <utility>

#include <fmt/format.h>

#include "common/base/status.h"
#include "common/process/fault_injection.h"
#include "controller/step/phase_recorder.h"
#include "controller/store/checkpoint_index.h"
#include "controller/workers/trainer_calls.h"

namespace tandem {
namespace {
// With trainer.save_freq=0: about how much work the loss of a trainer may cost.
constexpr absl::Duration kAutomaticInterval = absl::Minutes(10);
}  // namespace

void Checkpointer::StartFrom(const std::string& checkpoint) {
  newest_ = checkpoint;
  saved_step_ = parts_.position.finished_steps;
  saved_at_ = parts_.context.clock.Now();
  parts_.saver.SetCheckpoint(checkpoint);
}

absl::Status Checkpointer::SaveIfDue() {
  const int64_t step = parts_.position.finished_steps;
  const int64_t every = parts_.options.save_freq;
  const bool last = step >= parts_.length.total_steps();
  const Instant now = parts_.context.clock.Now();
  const bool due = last || (every > 0 && step % every == 0) ||
                   (every == 0 && now - saved_at_ >= kAutomaticInterval);
  if (!due || up_to_date()) return absl::OkStatus();
  saved_at_ = now;  // set even if the save fails: the next attempt is one interval later
  absl::Status saved = SaveWaiting();
  if (!absl::IsResourceExhausted(saved) || last) return saved;
  parts_.context.progress.OnEvent(
      {.severity = "warning",
       .kind = "checkpoint",
       .text = fmt::format("no checkpoint of step {}: {}", step, std::string(saved.message()))});
  return absl::OkStatus();
}

absl::Status Checkpointer::SaveUnsaved() { return up_to_date() ? absl::OkStatus() : SaveWaiting(); }

absl::Status Checkpointer::SaveWaiting() {
  const int64_t expected =
      newest_bytes_ > 0 ? newest_bytes_ : parts_.options.expected_checkpoint_bytes;
  TANDEM_RETURN_IF_ERROR(parts_.context.disk.Until(
      {.what = fmt::format("the checkpoint of step {}", parts_.position.finished_steps),
       .folder = parts_.context.checkpoints.dir(),
       .bytes = expected},
      [this] { return Save(); }));
  // An earlier process may have recorded the step. The store waits by itself.
  if (newest_record_.step != parts_.position.finished_steps) return absl::OkStatus();
  return parts_.context.store.RecordStep(newest_record_);
}

absl::Status Checkpointer::Save() {
  const StepContext& context = parts_.context;
  const int64_t step = parts_.position.finished_steps;
  PhaseRecorder phases(step, context.pool, context.progress, context.clock);
  phases.Begin("save");
  TANDEM_ASSIGN_OR_RETURN(const std::string directory, context.checkpoints.Begin(step));
  const auto save = [&](TrainerClient& trainer, int, Done<SaveReply> done) {
    trainer.SaveState(directory, parts_.position.version, std::move(done));
  };
  const auto saved = CallAllTrainers<SaveReply>(context.pool, save);
  FaultPoint("checkpoint");
  const absl::StatusOr<std::string> path =
      saved.ok() ? Commit(directory) : absl::StatusOr<std::string>(saved.status());
  if (!path.ok()) {
    context.checkpoints.Abandon(step);
    return Annotate(path.status(), "checkpoint " + directory);
  }
  StartFrom(*path);
  parts_.recovery.SetCheckpoint(*path);
  ForgetBeforeOldest();
  int64_t bytes = 0;
  for (size_t rank = 0; rank < saved->size(); ++rank) {
    bytes += (*saved)[rank].bytes;
    phases.Report({WorkerRole::kTrainer, static_cast<int>(rank)}, (*saved)[rank].report);
  }
  newest_bytes_ = bytes;
  phases.End();
  context.progress.OnEvent({.kind = "checkpoint",
                            .text = fmt::format("checkpoint {} ({} MiB, {:.1f} s)", *path,
                                                bytes >> 20, phases.Seconds("save"))});
  newest_record_.phases.push_back(phases.phases().front());
  return absl::OkStatus();
}

absl::StatusOr<std::string> Checkpointer::Commit(const std::string& directory) {
  const RunPosition& position = parts_.position;
  const TrainOptions& options = parts_.options;
  const int64_t step = position.finished_steps;
  TANDEM_RETURN_IF_ERROR(parts_.generation.Save(directory, step));
  return parts_.context.checkpoints.Commit(
      step,
      {.step = step,
       .version = position.version,
       .data = position.data,
       .store_step = step,
       .world_size = parts_.context.pool.topology().trainers,
       .moments = options.save_moments,
       .kl_coef = options.kl_control.adaptive ? std::optional(position.kl_coef) : std::nullopt,
       .skipped_in_a_row = position.skipped_in_a_row,
       .planned_steps = parts_.length.planned_steps(),
       .config_yaml = options.config_yaml,
       .inputs = options.inputs});
}

void Checkpointer::ForgetBeforeOldest() {
  const StepContext& context = parts_.context;
  const absl::Status forgotten =
      parts_.generation.ForgetBefore(context.checkpoints.List().front().step);
  if (forgotten.ok()) return;
  // The checkpoint is complete, and a journal that is longer than necessary does no harm.
  context.progress.OnMessage(
      fmt::format("the round journal was not shortened: {}", std::string(forgotten.message())));
}

}  // namespace tandem
