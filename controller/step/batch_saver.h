// Saves a step's samples, with all that is known of them, as one file that can be read alone: on
// request, and of a step that a failure ends the run with.
#pragma once

#include <string>

#include <absl/status/status.h>

#include "controller/step/step_batch.h"
#include "controller/step/step_context.h"
#include "controller/step/train_options.h"
#include "controller/store/saved_batch.h"

namespace tandem {

// Files are those of store/batch_file.h. One sample is in memory at a time.
class BatchSaver {
 public:
  // All must outlive it.
  BatchSaver(const StepContext& context, const TrainOptions& options, const RunPosition& position)
      : context_(context), options_(options), position_(position) {}

  // The newest checkpoint, which the file of a failed step names.
  void SetCheckpoint(const std::string& path) { checkpoint_ = path; }

  // To run_dir/batches, by trainer.save_batch_freq. DataLoss: the step's own samples are damaged.
  // Any other failure is told to the user and is no error, as the run can go on without the file.
  absl::Status SaveDue(const StepBatch& batch);

  // To run_dir/failed_steps. Returns a sentence that says where it is, or why it is not.
  std::string SaveFailed(const StepBatch& batch, const std::string& failure);
  // `status`, which is not OK, with its step saved; `what` else is in the file, "" for nothing.
  absl::Status SaveWith(const StepBatch& batch,
                        const absl::Status& status,
                        const std::string& what);
  // `status`, with its step saved where it is DataLoss: a ratio or log-prob is not what it must be.
  absl::Status SaveIfDataLoss(const StepBatch& batch, const absl::Status& status);

 private:
  absl::Status Save(const std::string& path,
                    const SavedBatchInfo& info,
                    const StepBatch& batch) const;
  absl::Status SaveFailedTo(const std::string& folder,
                            const StepBatch& batch,
                            const std::string& failure) const;
  SavedBatchInfo MakeInfo(const StepBatch& batch) const;

  const StepContext& context_;
  const TrainOptions& options_;
  const RunPosition& position_;
  std::string checkpoint_;
};

}  // namespace tandem
