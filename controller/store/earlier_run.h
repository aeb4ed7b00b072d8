// Sets aside what an earlier run has made in a run directory, so that a new run deletes none of it.
#pragma once

#include <cstdint>
#include <string>

#include <absl/status/statusor.h>

#include "controller/store/checkpoint_index.h"

namespace tandem {

// What a start sets aside: files of a run that it does not continue.
enum class SetAside {
  kNothing,
  kLaterCheckpoints,  // those after the step that the run goes back to
  kWholeRun,          // all checkpoints, and the files that a run writes into its directory
};

// Lifecycle: a start looks (Folder) and says where the files will be; Move is called once the new
// run is sure to begin. Nothing is deleted or replaced. A process that is killed during Move leaves
// the rest to the next start, which finds the run as finished as it was. Not thread-safe.
class EarlierRun {
 public:
  // `checkpoints` must outlive the object. With kLaterCheckpoints, `step` is the last step that
  // stays.
  EarlierRun(std::string run_dir, CheckpointIndex& checkpoints, SetAside what, int64_t step = -1);

  // The folder that Move would move the files to: `checkpoints`.previous, or .previous-2 and so on
  // where that exists. "": there is nothing to move.
  std::string Folder() const;
  // Moves the files to Folder(), which then holds checkpoints, `run.db`, `metrics.jsonl` and so on
  // under their names. Returns where they are, for the user; "": nothing was moved. Where the
  // checkpoints are on another file system than the run directory, its files move to
  // RUN_DIR/records.previous. No program may have `run.db` open for writing. Errors by IoErrorCode.
  absl::StatusOr<std::string> Move();

 private:
  // Returns the folder that has them.
  absl::StatusOr<std::string> MoveRecords(const std::string& folder) const;
  // Of the last step that stays.
  int64_t LastKept() const { return what_ == SetAside::kWholeRun ? -1 : step_; }

  const std::string run_dir_;
  CheckpointIndex& checkpoints_;
  const SetAside what_;
  const int64_t step_;
};

}  // namespace tandem
