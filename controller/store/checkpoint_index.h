// The checkpoints of a run on disk: which exist, which are whole, which may go.
//
//   <dir>/step_12.tmp/   being written by the trainers (SaveState)
//   <dir>/step_12/       complete: controller_state.json is in it, and lists every file
//   <dir>/finished       the step with which the run was finished: all steps, validation, report
//   <dir>/latest         the name of the newest complete one, for people and scripts
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include "controller/data/prompt.h"

namespace tandem {

// What the controller must know to go on from a checkpoint.
struct ControllerState {
  int64_t step = 0;        // finished steps
  int64_t version = 0;     // weight version
  DataPosition data;       // of the next batch
  int64_t store_step = 0;  // newest step whose rows are in the store
  int world_size = 1;
  bool moments = true;            // of the optimizer are saved: the run goes on exactly
  std::optional<double> kl_coef;  // of the next step; with algorithm.kl_ctrl.type=adaptive
  int64_t skipped_in_a_row = 0;   // optimizer steps, the newest ones
  int64_t planned_steps = 0;      // of a run that its time made shorter; 0: not (yet)
  std::string config_yaml;
  std::map<std::string, int64_t> files;  // bytes by path relative to the checkpoint
};

struct CheckpointEntry {
  int64_t step = 0;
  std::string path;
};

// What there is to go on from.
struct FoundCheckpoint {
  std::optional<CheckpointEntry> newest;  // that is whole
  std::vector<std::string> left_out;      // newer ones that are not whole: "path: reason"
};

// Not thread-safe; one per run. A kill at any moment leaves either the old newest checkpoint or
// the new one, never a broken one that counts as complete.
class CheckpointIndex {
 public:
  // Makes `dir`; removes folders that a dead process left unfinished. `keep`: 0 = all.
  static absl::StatusOr<CheckpointIndex> Open(const std::string& dir, int64_t keep);
  // For who only looks: nothing is made, moved or removed, and `dir` need not exist.
  // SetAside says what it would do.
  static CheckpointIndex OpenReadOnly(const std::string& dir) { return {dir, 0, /*looks=*/true}; }

  // An empty step_N.tmp for the trainers to write into; the run is not finished (any more).
  // ResourceExhausted: disk full.
  absl::StatusOr<std::string> Begin(int64_t step);
  // Adds the controller's state (`files` is filled in here), makes everything durable, renames,
  // points `latest` there and then removes what is beyond `keep`. Returns the final path.
  absl::StatusOr<std::string> Commit(int64_t step, ControllerState state);
  // Gives up an unfinished one. The older ones are as they were.
  void Abandon(int64_t step);

  // Complete ones, oldest first.
  std::vector<CheckpointEntry> List() const;
  // The newest whole one, and every newer step_N that is not: damaged, or without its state.
  // `whole`: what makes one that passes ReadState whole besides, by its path; OK where it is.
  using WholeCheck = std::function<absl::Status(const std::string& path)>;
  FoundCheckpoint FindNewest(const WholeCheck& whole = {}) const;

  // NotFound: no controller_state.json (not complete); DataLoss: unreadable, or a listed file is
  // missing or has another size.
  static absl::StatusOr<ControllerState> ReadState(const std::string& path);
  // The folder in a checkpoint with the Hugging Face export, "" without one.
  static std::string HfExport(const std::string& path);

  // Says that nothing is left to do after `step`, durably. Without it a run that stands at its last
  // step may still lack its validation or report.
  absl::Status MarkFinished(int64_t step);
  // The step given to MarkFinished, nullopt if the run here is not finished.
  std::optional<int64_t> FinishedStep() const;

  // Moves all checkpoints after `step` (-1: all) to <dir>.previous (or .previous-2 and so on;
  // nothing is replaced), which it returns; "" where there is none.
  absl::StatusOr<std::string> SetAside(int64_t step);

  const std::string& dir() const { return dir_; }

 private:
  CheckpointIndex(std::string dir, int64_t keep, bool looks = false)
      : dir_(std::move(dir)), keep_(keep), looks_(looks) {}
  void Prune() const;

  std::string dir_;
  int64_t keep_;
  bool looks_;
};

}  // namespace tandem
