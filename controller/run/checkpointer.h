// When a run saves checkpoints, and how.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include "controller/generation/generation_mode.h"
#include "controller/run/recovery.h"
#include "controller/step/batch_saver.h"
#include "controller/step/run_length.h"
#include "controller/step/step_context.h"
#include "controller/step/train_options.h"
#include "controller/store/run_store.h"

namespace tandem {

// All must outlive the Checkpointer.
struct CheckpointerParts {
  const StepContext& context;
  const TrainOptions& options;
  const RunPosition& position;  // of the trainers' weights, when something is saved
  const RunLength& length;
  GenerationMode& generation;
  Recovery& recovery;  // reloads the newest checkpoint
  BatchSaver& saver;   // writes its path into the file of a failed step
};

// A checkpoint has the trainers' state, what the generation mode carries over, and the controller's
// state (CheckpointIndex). Not thread-safe.
class Checkpointer {
 public:
  explicit Checkpointer(const CheckpointerParts& parts) : parts_(parts) {}

  // The run continues at its position from `checkpoint`; empty: from the model.
  void StartFrom(const std::string& checkpoint);
  // Takes the record of a step that was stored, to which the time of its checkpoint is added.
  void OnRecorded(StepRecord record) { newest_record_ = std::move(record); }

  // Saves if a checkpoint is due: every trainer.save_freq steps (0: after the first step that ends
  // at least ten minutes after the last checkpoint), and after the last step. Waits while the disk
  // is full or fails (DiskWait). If memory or another resource runs out before the last step, only
  // tells the user: an older checkpoint exists, and the next save may work. Other errors as
  // TrainerClient::SaveState, GenerationMode::Save, CheckpointIndex and RunStore. Then drops the
  // generation mode's data from before the oldest kept checkpoint.
  absl::Status SaveIfDue();
  // Saves where steps were finished since the newest checkpoint. Errors as SaveIfDue; a full disk
  // is one.
  absl::Status SaveUnsaved();

  // Its path; empty: none, the run began with the model.
  const std::string& newest() const { return newest_; }
  // Whether the newest checkpoint, or the model, is the state after all finished steps.
  bool up_to_date() const { return saved_step_ == parts_.position.finished_steps; }

 private:
  // Save, which waits for the disk; then the step's record has the time that it took.
  absl::Status SaveWaiting();
  absl::Status Save();
  absl::StatusOr<std::string> Commit(const std::string& directory);
  void ForgetBeforeOldest();

  const CheckpointerParts parts_;
  std::string newest_;
  int64_t saved_step_ = 0;    // of the newest checkpoint
  Instant saved_at_;          // the start, the newest checkpoint, or a later attempt to save one
  int64_t newest_bytes_ = 0;  // of the newest checkpoint that this process saved
  StepRecord newest_record_;
};

}  // namespace tandem
