// From where a run starts: the model, or a checkpoint that fits the configuration.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <absl/status/statusor.h>

#include "common/config/config.h"
#include "controller/store/checkpoint_index.h"

namespace tandem {

struct ResumeOptions {
  int64_t total_steps = 1;
  // The same for all starts of one launch, "" for a controller started by hand. A second start of
  // a launch is a restart after a crash.
  std::string launch_id;
  // Asked of the checkpoint that is chosen, before anything is moved: OK where all in it (finished
  // steps: `step`) fits the run. Empty: nothing is asked.
  std::function<absl::Status(const std::string& checkpoint, int64_t step)> fits;
};

struct ResumePoint {
  std::string checkpoint;  // empty: from the model
  int64_t step = 0;        // finished steps there
  // What an earlier run left here was set aside by this launch, and means nothing to this one.
  bool anew = false;
  std::string note;  // for the user, may be empty
  // For the user, before anything trains: checkpoints that were left out, keys that were changed.
  // Empty if the run goes on as it would have.
  std::vector<std::string> warnings;
};

// By trainer.resume_mode. auto: the newest good checkpoint; where the run there is marked finished
// (CheckpointIndex::MarkFinished) with `total_steps` or more, or the time of this one is bounded
// (trainer.max_seconds), its checkpoints are set aside and the run starts anew. disable: what is
// there is set aside. resume_path: that one, and newer checkpoints in the folder are set aside,
// because the steps after it are made again.
// A restart goes on from the newest checkpoint of its launch, whatever the mode; without one it
// starts as the first start did.
// NotFound or DataLoss: the checkpoint is not whole, or of those in the folder none is (a start
// from the model would silently throw a run away); one with a damaged pool (CheckSavedBuffer) is
// not. InvalidArgument: it holds a model of another geometry than model.path, or other adapters.
// Else as ResumeOptions::fits.
absl::StatusOr<ResumePoint> ChooseResumePoint(const v1::Config& config,
                                              const ResumeOptions& options,
                                              CheckpointIndex& checkpoints);

// The same, without touching what is there, for a start that only looks: auto and disable differ in
// nothing but whether the newest checkpoint counts, and a finished run's does. Nothing is resumed,
// so note and warnings say nothing of a run that goes on.
absl::StatusOr<ResumePoint> PeekResumePoint(const v1::Config& config,
                                            const CheckpointIndex& checkpoints);

// What a change of these keys means for a run that goes on from a checkpoint: those that bear on
// samples, gradients or data are listed as "key: old -> new"; those that do not (processes,
// folders, what is logged, saved or validated, how memory is used) are left out.
std::vector<std::string> ChangesOfTheRun(const std::vector<ConfigChange>& changes);

}  // namespace tandem
