// Sets aside what an earlier run has made in a run directory, so that a new run deletes none of it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <absl/status/status.h>
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
// run is sure to begin. Nothing is deleted or replaced. RUN_DIR/moving names the folders while Move
// is at work: after a failure or a kill, another call or the next start goes on with the same ones,
// and until the end the run is as finished as it was. Not thread-safe.
class EarlierRun {
 public:
  // `checkpoints` must outlive the object; files are moved by its renames(). With
  // kLaterCheckpoints, `step` is the last step that stays.
  EarlierRun(std::string run_dir, CheckpointIndex& checkpoints, SetAside what, int64_t step = -1);

  // The folder that Move would move the checkpoints to: that of a move that was interrupted;
  // `checkpoints`.previous, or .previous-2 and so on where that exists; or, where `checkpoints` is
  // a mount of its own, which no file leaves by a rename, `checkpoints`/run.previous. "": there is
  // nothing to move.
  std::string Folder() const;
  // Whether an earlier Move was interrupted: some files may be in its folders already.
  bool WasInterrupted() const { return Interrupted().has_value(); }
  // Moves the files to Folder(), which then holds checkpoints, `run.db`, `metrics.jsonl` and so on
  // under their names. Returns where they are, for the user; "": nothing was moved. Where the
  // checkpoints are on another file system than the run directory, its files move to
  // RUN_DIR/records.previous. With kNothing, an interrupted move is forgotten: the run goes on
  // without what was moved. No program may have `run.db` open for writing. Errors by IoErrorCode;
  // those of a full or failing disk are marked (disk_refusal.h). FailedPrecondition: a file is in
  // both places.
  absl::StatusOr<std::string> Move();

 private:
  struct Targets {
    std::string checkpoints;
    std::string records;
  };

  // Those of RUN_DIR/moving; nullopt: there is none, or its folder is gone.
  std::optional<Targets> Interrupted() const;
  bool HasSomething() const;
  Targets Choose() const;
  // Makes the folder of the checkpoints, and names both durably in RUN_DIR/moving.
  absl::Status Announce(const Targets& targets) const;
  absl::Status MoveRecords(const std::string& folder) const;
  // Removes RUN_DIR/moving.
  absl::Status Conclude() const;
  std::string MovingFile() const { return run_dir_ + "/moving"; }
  // Of the last step that stays.
  int64_t LastKept() const { return what_ == SetAside::kWholeRun ? -1 : step_; }

  const std::string run_dir_;
  CheckpointIndex& checkpoints_;
  const SetAside what_;
  const int64_t step_;
};

}  // namespace tandem
