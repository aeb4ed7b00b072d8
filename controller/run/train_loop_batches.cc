// Updates that were left out or had nothing to learn from, and batches that are saved for a look at
// them.
#include <algorithm>
#include <cmath>

#include "common/base/log.h"
#include "common/base/status.h"
#include "common/formats/files.h"
#include "controller/run/save_batch.h"
#include "controller/run/train_loop.h"
#include "controller/store/run_store.h"
#include "controller/store/saved_batch.h"

namespace tandem {

absl::Status TrainLoop::CountSkipped(StepBatch& batch, const OptimizerStepResult& result) {
  if (!result.skipped) {
    position_.skipped_in_a_row = 0;
    return absl::OkStatus();
  }
  batch.facts.trainer[kSkippedUpdates] += 1;
  parts_.progress.OnMessage(
      fmt::format("step {}: the gradient norm is not finite; this update was skipped", batch.step));
  const int64_t skipped = ++position_.skipped_in_a_row;
  if (skipped < std::max<int64_t>(1, options_.max_skipped_steps)) return absl::OkStatus();
  const std::string failure = fmt::format(
      "step {}: {} update{} in a row {} skipped, the last gradient norm is {} (mini-batch {} of "
      "{})",
      batch.step, skipped, skipped == 1 ? "" : "s", skipped == 1 ? "was" : "were", result.grad_norm,
      batch.mini_batch + 1, batch.plan.size());
  // What went wrong first is what the run ends with.
  return MakeStatus(absl::StatusCode::kDataLoss,
                    "{}: nothing is learnt any more. Go back to an earlier checkpoint with a "
                    "smaller actor.optim.lr, or check rewards and model. {}",
                    failure, SaveFailedStep(batch, failure));
}

absl::Status TrainLoop::CountRejected(StepBatch& batch,
                                      const std::map<std::string, double>& metrics,
                                      int64_t updates) {
  const auto masked = metrics.find(kMaskedFraction);
  if (masked == metrics.end() || masked->second < 1) return absl::OkStatus();
  double& rejected = batch.facts.trainer[kRejectedUpdates];
  rejected += 1;
  if (rejected < static_cast<double>(updates)) return absl::OkStatus();
  const RolloutCorrectionOptions& correction = options_.correction;
  const auto kl = metrics.find("rollout_corr/k3_kl");
  // Not a state that a recovery could mend.
  return InvalidArgument(
      "step {}: algorithm.rollout_correction.rollout_rs={} with rollout_rs_threshold={} rejected "
      "every token of all {} mini-batches in bypass mode, KL between rollout and trainers {:.3g}: "
      "nothing is left to train on. Raise the threshold, or find out why the two differ "
      "(tandemctl parity)",
      batch.step, correction.rollout_rs.value_or("null"),
      correction.rollout_rs_threshold.value_or("null"), updates,
      kl == metrics.end() ? NAN : kl->second);
}

void TrainLoop::TellOfRejected(const StepBatch& batch, int64_t updates) {
  const auto rejected = batch.facts.trainer.find(kRejectedUpdates);
  if (rejected == batch.facts.trainer.end()) return;
  parts_.progress.OnMessage(
      fmt::format("step {}: the rollout correction rejected every token of {:.0f} of {} updates, "
                  "which moved the weights by momentum, decay, KL loss and entropy alone",
                  batch.step, rejected->second, updates));
}

absl::Status TrainLoop::WithStepSaved(const StepBatch& batch, const absl::Status& status) {
  return absl::IsDataLoss(status) ? SavedWith(batch, status, "") : status;
}

absl::Status TrainLoop::SavedWith(const StepBatch& batch,
                                  const absl::Status& status,
                                  const std::string& what) {
  const std::string failure(status.message());
  const std::string beside = what.empty() ? "" : ", " + what;
  absl::Status ended(status.code(), failure + "\n" + SaveFailedStep(batch, failure) + beside);
  status.ForEachPayload([&ended](absl::string_view url, const absl::Cord& payload) {
    ended.SetPayload(url, payload);
  });
  return ended;
}

std::string TrainLoop::SaveFailedStep(const StepBatch& batch, const std::string& failure) {
  const std::string folder = fmt::format("{}/failed_steps/step_{}", options_.run_dir, batch.step);
  const absl::Status saved = SaveFailedStep(batch, folder, failure);
  if (!saved.ok()) {
    return fmt::format("The step could not be saved: {}", std::string(saved.message()));
  }
  return fmt::format("The step is saved: tandemctl batch inspect {}/step{} shows it", folder,
                     kBatchSuffix);
}

absl::Status TrainLoop::SaveFailedStep(const StepBatch& batch,
                                       const std::string& folder,
                                       const std::string& failure) {
  SavedBatchInfo info = BatchInfoOf(batch);
  info.failure = failure;
  info.mini_batch = batch.mini_batch;
  info.checkpoint = newest_checkpoint_;
  TANDEM_RETURN_IF_ERROR(SaveBatch(folder + "/step" + kBatchSuffix, info, parts_.samples, batch));
  return WriteFileAtomically(folder + "/config.yaml", options_.config_yaml);
}

absl::Status TrainLoop::SaveDueBatch(const StepBatch& batch) {
  if (options_.save_batch_freq <= 0 || batch.step % options_.save_batch_freq != 0) {
    return absl::OkStatus();
  }
  const std::string path =
      fmt::format("{}/batches/step_{}{}", options_.run_dir, batch.step, kBatchSuffix);
  const absl::Status saved = SaveBatch(path, BatchInfoOf(batch), parts_.samples, batch);
  // The run can go on without it, unless the step's own samples are damaged.
  if (saved.ok() || absl::IsDataLoss(saved)) return saved;
  parts_.progress.OnMessage(
      fmt::format("step {}: its batch is not saved: {}", batch.step, std::string(saved.message())));
  return absl::OkStatus();
}

SavedBatchInfo TrainLoop::BatchInfoOf(const StepBatch& batch) const {
  SavedBatchInfo info = InfoOf(batch);
  info.sampling_version = batch.version;
  info.version = position_.version;
  info.ranks = parts_.pool.pairs();
  info.model_path = options_.model_path;
  info.config_yaml = options_.config_yaml;
  return info;
}

}  // namespace tandem
