// Loads the run's state into the workers: at the start, at a resume, and after the loss of a
// worker.
//
// A lost rollout costs its groups, which other rollouts take over (RolloutFleet); its successor
// receives the weights in a sync of its own. A lost trainer costs the steps since the last
// checkpoint: all trainers reload it, all rollouts receive its weights, and the steps are repeated.
// Both are charged to max_restarts.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include "controller/run/trainer_group_counter.h"
#include "controller/step/step_context.h"
#include "controller/step/train_options.h"

namespace tandem {

// Not thread-safe.
class Recovery {
 public:
  Recovery(const StepContext& context, const TrainOptions& options)
      : context_(context), options_(options), generations_(options.run_dir + "/generation") {}

  // Waits for all workers, loads the trainers from `checkpoint` (empty: the model) and syncs the
  // rollouts. Returns the position of that state.
  absl::StatusOr<RunPosition> Start(const std::string& checkpoint);

  // Recovers from a step that failed with `reason` and returns the position to continue from. Fails
  // with the reason itself when no worker was lost, or when the restart budget is spent.
  absl::StatusOr<RunPosition> Recover(absl::Status reason);

  // After a weight sync that failed with `reason`: reports the loss, then waits until all workers
  // are registered. OK: the trainers still hold their state, so that publishing again is enough.
  // Otherwise the error that the step fails with: the reason, or the workers that did not return.
  absl::Status AwaitRollouts(const absl::Status& reason);

  // The checkpoint that Recover loads from now on.
  void SetCheckpoint(const std::string& path) { checkpoint_ = path; }

  // The files that the weights of the checkpoint must equal: WeightCheckFiles::Find.
  std::string FilesToCheck() const;

  // Warns the user if the loaded checkpoint has no Adam moments: the optimizer restarts from zero,
  // so the run will differ from an uninterrupted one. Recover calls it itself.
  void WarnOfMoments() const;

  // Whether the trainers still hold the state of the run: none of them was lost since it was
  // loaded, and no recovery has begun to load another one.
  bool trainers_kept() const;

  // The number of the trainers' group that was formed last; 0: none yet.
  int64_t generation() const { return generation_; }

  // Whether the last failure was one to load the model or the checkpoint.
  bool failed_loading() const { return loading_; }

 private:
  absl::StatusOr<RunPosition> LoadState();
  absl::StatusOr<RunPosition> LoadOnce();
  absl::StatusOr<RunPosition> LoadTrainers();
  absl::Status ResetTrainers(int64_t version);
  // Whether the weight check of a sync failed because of the checkpoint's export alone;
  // ComparedFile names it.
  bool IsFileDamaged(const absl::Status& checked) const;
  std::string ComparedFile() const;
  // The role to charge when LoadOnce fails: the trainers until they have loaded the state;
  // afterwards the rollouts, unless a trainer has restarted.
  WorkerRole LostWhileLoading() const;
  // Gives up the connections to all workers, of which one may be why a call failed; then Pace and
  // WaitUntilComplete. A failure also names `loss`, the first error.
  absl::Status AwaitAll(const absl::Status& loss);
  // A second failure in a row, for which no process was replaced, is that of a connection: until
  // one is, the run waits as long after the first as a worker may be silent. Otherwise attempts
  // that nothing has changed for would spend the restart budget in a moment.
  void Pace();
  bool interrupted() const { return context_.interrupted && context_.interrupted(); }
  // Adds the remedy to the error of a checkpoint that cannot be loaded.
  absl::Status WithRemedy(const absl::Status& status) const;

  const StepContext& context_;
  const TrainOptions& options_;
  TrainerGroupCounter generations_;
  int64_t generation_ = 0;
  std::string group_ticket_;  // what the trainers of all groups show each other
  std::string checkpoint_;    // empty: the model itself
  bool loading_ = false;
  bool loaded_ = false;                 // the newest load is complete
  bool moments_ = true;                 // the loaded checkpoint has them
  std::vector<WorkerMember> trainers_;  // at the last reset
  Instant failed_at_ = Instant::InfinitePast();
  std::vector<int64_t> failed_with_;  // the incarnations of all workers then
};

}  // namespace tandem
