// From any state to a running one: at the start, at a resume, and after the loss of a worker.
//
// A lost rollout costs its groups, which others take over (RolloutFleet); it comes back with a sync
// of its own. A lost trainer costs the steps since the last checkpoint: all trainers reload it, all
// rollouts are synced to it, and the steps are made again. Both count against max_restarts.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include "controller/step/step_context.h"
#include "controller/step/train_options.h"

namespace tandem {

// Not thread-safe.
class Recovery {
 public:
  // `first_generation` must be above that of any earlier controller of this run.
  Recovery(const StepContext& context, const TrainOptions& options, int64_t first_generation)
      : context_(context), options_(options), generation_(first_generation) {}

  // Waits for all workers, loads the trainers from `checkpoint` (empty: the model) and syncs the
  // rollouts. Returns where the run stands.
  absl::StatusOr<RunPosition> Start(const std::string& checkpoint);

  // After a step failed with `reason`: returns where the run stands now. The reason itself when
  // nothing was lost that a recovery could bring back, or when the budget is used up.
  absl::StatusOr<RunPosition> Recover(absl::Status reason);

  // After a weight sync failed with `reason`: waits until everybody is there. OK: the trainers are
  // still those of the last reset, so that publishing again is all it takes. Else what the step
  // fails with: the reason, or that somebody stayed away.
  absl::Status AwaitRollouts(const absl::Status& reason);

  // What Recover goes back to from now on.
  void SetCheckpoint(const std::string& path) { checkpoint_ = path; }

  // HF checkpoint that the weights of the last start must equal (with adapters also a directory of
  // those, with the base); "": there is none, so the trainers'.
  std::string Oracle() const;

  // Tells the user if what was loaded has no Adam moments: training on is not what it would have
  // been. Recover does it by itself.
  void WarnOfMoments() const;

  // Whether the trainers hold what they were loaded with and what steps have made of it since: none
  // of them was lost, and no recovery has begun to load something else.
  bool trainers_kept() const;

  // Whether what failed last was to load the model or the checkpoint.
  bool failed_loading() const { return loading_; }

 private:
  std::string LoraOracleDir() const;
  absl::StatusOr<RunPosition> LoadState();
  absl::StatusOr<RunPosition> LoadOnce();
  absl::StatusOr<RunPosition> LoadTrainers();
  absl::Status ResetTrainers(int64_t version);
  // WaitUntilComplete, which, failed, also tells how the loss showed.
  absl::Status AwaitAll(const absl::Status& loss);
  bool interrupted() const { return context_.interrupted && context_.interrupted(); }
  // Adds what to do about a checkpoint that cannot be loaded.
  absl::Status WithRemedy(const absl::Status& status) const;

  const StepContext& context_;
  const TrainOptions& options_;
  int64_t generation_;
  std::string checkpoint_;  // empty: the model itself
  bool loading_ = false;
  bool loaded_ = false;                // the newest load came to its end
  bool moments_ = true;                // were in what was loaded last
  std::vector<int64_t> incarnations_;  // of the trainers at the last reset
};

}  // namespace tandem
