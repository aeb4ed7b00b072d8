#include "controller/run/recovery.h"

#include <utility>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/progress.h"
#include "common/base/status.h"
#include "common/formats/files.h"
#include "common/process/files/run_token.h"
#include "controller/workers/trainer_calls.h"

namespace tandem {
namespace {

constexpr absl::Duration kPaceStep = absl::Milliseconds(20);

struct Nothing {};

}  // namespace

absl::StatusOr<RunPosition> Recovery::Start(const std::string& checkpoint) {
  checkpoint_ = checkpoint;
  TANDEM_RETURN_IF_ERROR(
      context_.pool.WaitUntilComplete(options_.register_timeout, context_.interrupted));
  return LoadState();
}

void Recovery::Pace() {
  Clock& clock = context_.clock;
  const Instant again = failed_at_ + options_.heartbeat_timeout;
  const std::vector<int64_t> workers = context_.pool.Incarnations();
  if (workers == failed_with_ && clock.Now() < again) {
    LogInfo(
        "The same workers failed a moment ago: the next attempt follows in {}, or when one of "
        "them was replaced",
        absl::FormatDuration(again - clock.Now()));
  }
  while (workers == failed_with_ && clock.Now() < again && !interrupted() &&
         context_.pool.Incarnations() == workers) {
    NoteProgress();
    clock.Sleep(kPaceStep);
  }
  failed_at_ = clock.Now();
  failed_with_ = context_.pool.Incarnations();
}

absl::Status Recovery::AwaitAll(const absl::Status& loss) {
  context_.pool.Reconnect();
  Pace();
  const absl::Status complete =
      context_.pool.WaitUntilComplete(options_.register_timeout, context_.interrupted);
  return WithMessage(complete, fmt::format("{} (first error: {})", std::string(complete.message()),
                                           std::string(loss.message())));
}

absl::StatusOr<RunPosition> Recovery::Recover(absl::Status reason) {
  const bool may_be_a_loss = IsPeerFailure(reason) || absl::IsFailedPrecondition(reason) ||
                             context_.pool.Members(WorkerRole::kTrainer) != trainers_;
  // Wrong weights or numbers stay wrong, whether or not a worker was lost as well. A worker that
  // did not return within its timeout is not waited for again.
  if (absl::IsDataLoss(reason) || WorkerDidNotReturn(reason) || context_.budget.gave_up())
    return reason;
  if (!may_be_a_loss || interrupted()) return reason;
  TANDEM_RETURN_IF_ERROR(context_.budget.Charge(WorkerRole::kTrainer, reason));
  context_.progress.OnEvent(
      {.severity = "warning", .kind = "loss", .text = context_.budget.RecoveringFrom(reason)});
  TANDEM_RETURN_IF_ERROR(AwaitAll(reason));
  TANDEM_ASSIGN_OR_RETURN(const RunPosition position, LoadState());
  WarnOfMoments();
  context_.budget.CloseIncident();
  context_.progress.OnEvent(
      {.kind = "recovery",
       .text = fmt::format("recovered: continuing from step {}, weight version {}",
                           position.finished_steps, position.version)});
  return position;
}

absl::Status Recovery::AwaitRollouts(const absl::Status& reason) {
  if (!IsPeerFailure(reason) && !absl::IsFailedPrecondition(reason)) return reason;
  if (interrupted()) return reason;
  context_.progress.OnEvent(
      {.severity = "warning",
       .kind = "loss",
       .text = fmt::format(
           "a worker was lost while weights were synced, waiting until all are there: {}",
           std::string(reason.message()))});
  TANDEM_RETURN_IF_ERROR(AwaitAll(reason));
  return context_.pool.Members(WorkerRole::kTrainer) == trainers_ ? absl::OkStatus() : reason;
}

absl::StatusOr<RunPosition> Recovery::LoadState() {
  while (true) {
    absl::StatusOr<RunPosition> position = LoadOnce();
    if (position.ok() || !IsPeerFailure(position.status())) return position;
    if (interrupted()) return position;
    // A worker was lost during the recovery, or while the run began.
    context_.progress.OnEvent(
        {.severity = "warning",
         .kind = "loss",
         .text = fmt::format("a worker was lost while the run's state was loaded: {}",
                             std::string(position.status().message()))});
    TANDEM_RETURN_IF_ERROR(context_.budget.Charge(LostWhileLoading(), position.status()));
    TANDEM_RETURN_IF_ERROR(AwaitAll(position.status()));
  }
}

WorkerRole Recovery::LostWhileLoading() const {
  const bool trainer = loading_ || context_.pool.Members(WorkerRole::kTrainer) != trainers_;
  return trainer ? WorkerRole::kTrainer : WorkerRole::kRollout;
}

absl::Status Recovery::WithRemedy(const absl::Status& status) const {
  const bool damaged = absl::IsDataLoss(status) || absl::IsInvalidArgument(status);
  if (!damaged || checkpoint_.empty()) return status;
  std::string older;
  for (const CheckpointEntry& entry : context_.checkpoints.List()) {
    if (entry.path == checkpoint_) break;
    older = entry.path;
  }
  return absl::Status(
      status.code(),
      fmt::format(
          "checkpoint {} cannot be loaded: {}; {}", checkpoint_, std::string(status.message()),
          older.empty()
              ? "there is no older one: with trainer.resume_mode=disable the run starts over"
              : fmt::format("to continue from the one before, set "
                            "trainer.resume_mode=resume_path and "
                            "trainer.resume_from_path={}",
                            older)));
}

absl::StatusOr<RunPosition> Recovery::LoadTrainers() {
  RunPosition position{.kl_coef = options_.kl_coef};
  if (!checkpoint_.empty()) {
    TANDEM_ASSIGN_OR_RETURN(const ControllerState state, CheckpointIndex::ReadState(checkpoint_));
    position.finished_steps = state.step;
    position.version = state.version;
    position.data = state.data;
    position.skipped_in_a_row = state.skipped_in_a_row;
    if (options_.kl_control.adaptive && state.kl_coef) position.kl_coef = *state.kl_coef;
    moments_ = state.moments;
  }
  // Sets step and version for the log lines here and, through the calls below, in the workers.
  SetLogStep(position.finished_steps);
  SetLogVersion(position.version);
  TANDEM_RETURN_IF_ERROR(context_.prompts.Restore(position.data));
  TANDEM_RETURN_IF_ERROR(ResetTrainers(position.version));
  return position;
}

void Recovery::WarnOfMoments() const {
  if (moments_) return;
  context_.progress.OnMessage(fmt::format(
      "warning: {} has no Adam moments (actor.checkpoint.save_contents without "
      "optimizer, or save_lora_only): Adam starts from zero, so the run will differ from one "
      "that was not interrupted",
      checkpoint_));
}

std::string Recovery::FilesToCheck() const {
  return context_.weights.check_files().Find(checkpoint_);
}

absl::StatusOr<RunPosition> Recovery::LoadOnce() {
  loading_ = true;
  loaded_ = false;
  absl::StatusOr<RunPosition> loaded = LoadTrainers();
  if (!loaded.ok()) return WithRemedy(loaded.status());
  loading_ = false;
  const RunPosition position = *std::move(loaded);
  context_.weights.Forget();
  // A trainer that died in the middle of a sync may have left its rollout Updating.
  TANDEM_RETURN_IF_ERROR(context_.weights.EndStaleUpdates());
  const absl::StatusOr<WeightSyncResult> synced =
      context_.weights.Sync(position.version, FilesToCheck(), context_.interrupted);
  if (IsFileDamaged(synced.status())) {
    loading_ = true;
    return WithRemedy(Annotate(synced.status(), ComparedFile() +
                                                    " is damaged: its weights are not those of "
                                                    "the training state next to it"));
  }
  TANDEM_RETURN_IF_ERROR(synced.status());
  if (!synced->checked.empty()) context_.progress.OnMessage(synced->checked);
  TANDEM_RETURN_IF_ERROR(context_.weights.Wake(context_.interrupted).status());
  loaded_ = true;
  return position;
}

// The trainers' state was verified by digest. If the rollouts hold the same weights as the trainers
// and the checkpoint's export differs, the export is damaged.
bool Recovery::IsFileDamaged(const absl::Status& checked) const {
  if (!absl::IsDataLoss(checked) || checkpoint_.empty() || FilesToCheck().empty()) return false;
  const auto with_trainers = context_.weights.Check("");
  return with_trainers.ok() && Verdict(*with_trainers, kTrainersOwnWeights).ok();
}

std::string Recovery::ComparedFile() const {
  const std::string directory = FilesToCheck();
  const std::string whole = directory + "/model.safetensors";
  return PathExists(whole) ? whole : context_.weights.check_files().Describe(directory);
}

bool Recovery::trainers_kept() const {
  return loaded_ && context_.pool.Members(WorkerRole::kTrainer) == trainers_;
}

absl::Status Recovery::ResetTrainers(int64_t version) {
  TANDEM_RETURN_IF_ERROR(context_.disk.Until(
      {.what = "the number of the group of trainers", .folder = options_.run_dir},
      [this]() -> absl::Status {
        TANDEM_ASSIGN_OR_RETURN(generation_, generations_.Next());
        return absl::OkStatus();
      }));
  if (group_ticket_.empty()) {
    TANDEM_ASSIGN_OR_RETURN(group_ticket_, MakeSecret());
  }
  const ResetCall command{
      .generation = generation_,
      .world_size = context_.pool.topology().trainers,
      .rendezvous = fmt::format("{}/group-{}.sock", options_.local_dir, generation_),
      .members = context_.pool.Members(WorkerRole::kTrainer),
      .group_ticket = group_ticket_,
      .checkpoint_dir = checkpoint_,
      .version = version};
  const auto reset = [&](TrainerClient& trainer, int, Done<Nothing> done) {
    trainer.Reset(command, [done](const absl::Status& status) {
      done(status.ok() ? absl::StatusOr<Nothing>(Nothing{}) : absl::StatusOr<Nothing>(status));
    });
  };
  TANDEM_RETURN_IF_ERROR(CallAllTrainers<Nothing>(context_.pool, reset).status());
  trainers_ = context_.pool.Members(WorkerRole::kTrainer);
  return absl::OkStatus();
}

}  // namespace tandem
