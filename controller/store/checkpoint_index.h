// The checkpoints of a run on disk: finds the complete ones and removes old ones.
//
//   <dir>/step_12.tmp/   being written by the trainers (SaveState)
//   <dir>/step_12/       complete: it has a controller_state.json, which lists every file
//   <dir>/step_12.replaced.tmp/  step_12 until its successor has the name, where the file system
//                                cannot swap the two
//   <dir>/finished       the step at which the run finished: steps and validation, not report
//   <dir>/latest         the name of the newest complete checkpoint, for users and scripts
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include "common/formats/finished_mark.h"
#include "controller/data/pinned_inputs.h"
#include "controller/data/prompt.h"

namespace tandem {

// The controller's state that a run needs to resume from a checkpoint.
struct ControllerState {
  int64_t step = 0;        // finished steps
  int64_t version = 0;     // weight version
  DataPosition data;       // position of the next batch
  int64_t store_step = 0;  // newest step whose rows are in the store
  int world_size = 1;
  bool moments = true;            // optimizer moments are saved: a resumed run is exact
  std::optional<double> kl_coef;  // for the next step; only with algorithm.kl_ctrl.type=adaptive
  int64_t skipped_in_a_row = 0;   // newest consecutive skipped optimizer steps
  int64_t planned_steps = 0;      // total that a time limit settled; 0: none
  std::string config_yaml;
  std::vector<PinnedInput> inputs;       // empty: written by a version that did not record them
  std::map<std::string, int64_t> files;  // bytes by path relative to the checkpoint
};

struct CheckpointEntry {
  int64_t step = 0;
  std::string path;
};

// The result of FindNewest.
struct FoundCheckpoint {
  std::optional<CheckpointEntry> newest;  // the newest complete checkpoint
  std::vector<std::string> left_out;      // newer, incomplete ones: "path: reason"
};

// How folders get other names: a fake of it fails as a disk may. Each returns an errno; 0: done.
class FolderRenames {
 public:
  virtual ~FolderRenames() = default;
  virtual int Rename(const std::string& from, const std::string& to) const;
  // Swaps two folders at once. EINVAL, ENOSYS, ENOTSUP: the file system cannot.
  virtual int Exchange(const std::string& a, const std::string& b) const;
  // Whether a rename from one folder to the other can succeed: both are of one file system and one
  // mount. True also where a folder is missing or the system cannot tell.
  virtual bool CanMove(const std::string& from_folder, const std::string& to_folder) const;
};
const FolderRenames& SystemRenames();
// Renames `from` to `to`, where nothing may be yet. Errors name both, and those of a full or
// failing disk are marked (disk_refusal.h). FailedPrecondition: `to` exists.
absl::Status MoveAside(const FolderRenames& renames,
                       const std::string& from,
                       const std::string& to);

// Not thread-safe; one object per run. A kill or a failure at any moment leaves either the old
// newest checkpoint or the new one, never a broken one that counts as complete.
class CheckpointIndex {
 public:
  // Creates `dir` and removes folders that a dead process left unfinished. `keep`: the number of
  // checkpoints that Commit keeps; 0: all. `renames` must outlive the object.
  static absl::StatusOr<CheckpointIndex> Open(const std::string& dir,
                                              int64_t keep,
                                              const FolderRenames& renames = SystemRenames());
  // Opens without creating, moving or removing anything; `dir` need not exist.
  static CheckpointIndex OpenReadOnly(const std::string& dir) { return {dir, 0, SystemRenames()}; }

  // Creates an empty step_N.tmp for the trainers to write into, and removes the mark that the run
  // is finished. ResourceExhausted: disk full.
  absl::StatusOr<std::string> Begin(int64_t step);
  // Writes the controller's state (`files` is filled in here), makes everything durable, renames
  // the folder, removes checkpoints beyond `keep`, and then updates `latest`. Returns the final
  // path. A `latest` that cannot be written is a warning: nothing of the run reads it, and the next
  // Commit writes it again.
  absl::StatusOr<std::string> Commit(int64_t step, ControllerState state);
  // Removes an unfinished checkpoint. Older ones are not changed.
  void Abandon(int64_t step);

  // The complete checkpoints, oldest first.
  std::vector<CheckpointEntry> List() const;
  // Finds the newest complete checkpoint, and lists every newer step_N that is damaged or has no
  // state. `whole` is a further check of a checkpoint that ReadState accepts, given its path; OK:
  // it is complete.
  using WholeCheck = std::function<absl::Status(const std::string& path)>;
  FoundCheckpoint FindNewest(const WholeCheck& whole = {}) const;

  // NotFound: there is no controller_state.json, so the checkpoint is not complete; DataLoss: the
  // state is unreadable, or a listed file is missing or has another size.
  static absl::StatusOr<ControllerState> ReadState(const std::string& path);
  // The folder of the checkpoint's Hugging Face export; "" if there is none.
  static std::string HfExport(const std::string& path);

  // Records durably that nothing is left to do after `step`. Without this mark, a run at its last
  // step may still lack its validation or report.
  absl::Status MarkFinished(int64_t step);
  // The step given to MarkFinished; nullopt if the run is not finished.
  std::optional<int64_t> FinishedStep() const { return ReadFinishedStep(dir_); }

  // Whether there is a checkpoint after `step` (-1: any), complete or not.
  bool HasAfter(int64_t step) const;
  // Moves all checkpoints after `step` (-1: all) to `folder`, which must exist, then `latest`, and
  // last the mark of a finished run. Where checkpoints remain, `latest` is written anew for the
  // newest of them. The directory may hold other files of the user, which stay. After a failure or
  // a kill, another call with the same arguments moves what is left. Replaces nothing in `folder`.
  absl::Status MoveAfter(int64_t step, const std::string& folder);

  const std::string& dir() const { return dir_; }
  const FolderRenames& renames() const { return *renames_; }

 private:
  CheckpointIndex(std::string dir, int64_t keep, const FolderRenames& renames)
      : dir_(std::move(dir)), keep_(keep), renames_(&renames) {}
  // Gives the finished folder its name. Returns the folder that it has replaced; "": none.
  absl::StatusOr<std::string> PutInPlace(const std::string& temporary,
                                         const std::string& final_path) const;
  absl::Status NameLatest(const std::string& name) const;
  void Prune() const;

  std::string dir_;
  int64_t keep_;
  const FolderRenames* renames_;
};

}  // namespace tandem
