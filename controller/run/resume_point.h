// Chooses where a run starts: from the model, or from a checkpoint that fits the configuration.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <absl/status/statusor.h>

#include "common/config/config.h"
#include "controller/data/pinned_inputs.h"
#include "controller/store/checkpoint_index.h"
#include "controller/store/earlier_run.h"

namespace tandem {

struct ResumeOptions {
  int64_t total_steps = 1;
  // The same for all starts of one launch, "" for a controller that was started by hand. A second
  // start of the same launch is a restart after a crash.
  std::string launch_id;
  // Called for the chosen checkpoint: OK if everything in it (after `step` finished steps) fits the
  // run. Empty: no such check.
  std::function<absl::Status(const std::string& checkpoint, int64_t step)> fits;
  // Called where a checkpoint is chosen: the inputs of this run, which are compared with those of
  // the checkpoint. Empty: they are not compared.
  std::function<absl::StatusOr<std::vector<PinnedInput>>()> inputs;
};

struct ResumePoint {
  std::string checkpoint;  // empty: from the model
  int64_t step = 0;        // steps that were finished at the checkpoint
  // What the run must not use, and what is moved away once its workers are up (EarlierRun).
  SetAside set_aside = SetAside::kNothing;
  std::string note;  // for the user, may be empty
  // For the user, before training begins: checkpoints that were skipped, keys that were changed.
  // Empty if the run continues exactly as it would have.
  std::vector<std::string> warnings;
};

// Chooses by trainer.resume_mode. Changes nothing on disk: the start may still fail, or be given
// up.
// - auto: the newest complete checkpoint. Its run is set aside and a new one starts, if the run is
//   marked finished (CheckpointIndex::MarkFinished) with `total_steps` steps or more, or marked
//   finished at any step while the time of the new run is bounded (trainer.max_seconds).
// - disable: what is there is set aside and the run starts anew.
// - resume_path: the given checkpoint; later ones in the folder are set aside, because the steps
//   after it are repeated. If it is another folder's, the run that is here is set aside.
//
// A restart continues from the newest checkpoint of its launch, whatever the mode; without one it
// starts as the first start did.
//
// NotFound or DataLoss: the given checkpoint is not complete, or the folder has checkpoints but no
// complete one (starting from the model would silently discard a run); a checkpoint with a damaged
// rollout buffer (CheckSavedBuffer) is not complete. InvalidArgument: its model has another
// geometry than model.path, or other adapters, or was trained on other inputs (ChangedInputs) and
// trainer.resume_changed_inputs does not accept that. Else as ResumeOptions::fits and inputs.
absl::StatusOr<ResumePoint> ChooseResumePoint(const v1::Config& config,
                                              const ResumeOptions& options,
                                              CheckpointIndex& checkpoints);

// The number of complete checkpoints that stay in their folder after this start.
int64_t StayingCheckpoints(const ResumePoint& start, const CheckpointIndex& checkpoints);

// Records durably that the run directory belongs to this launch ("": none); from then on
// ChooseResumePoint takes its starts for restarts. Errors as WriteFileAtomically.
absl::Status ClaimForLaunch(const std::string& run_dir, const std::string& launch_id);

// As ChooseResumePoint, for a start that only inspects weights. auto then also takes the newest
// checkpoint of a finished run, and disable takes the model. The note and warnings do not mention a
// resume.
absl::StatusOr<ResumePoint> PeekResumePoint(const v1::Config& config,
                                            const CheckpointIndex& checkpoints);

// The changed keys that matter for a run that resumes from a checkpoint, as "key: old -> new":
// those that affect samples, gradients or data. Keys about processes, folders, logs, saving,
// validation and memory use are skipped.
std::vector<std::string> ChangesOfTheRun(const std::vector<ConfigChange>& changes);

}  // namespace tandem
