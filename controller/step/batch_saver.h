// Saves a step's samples, with everything that is known about them, as one self-contained file: on
// request, and for a step whose failure ends the run.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include <absl/status/status.h>

#include "controller/step/mini_batches.h"
#include "controller/step/step_batch.h"
#include "controller/step/step_context.h"
#include "controller/step/train_options.h"
#include "controller/store/run_store.h"
#include "controller/store/sample_store.h"
#include "controller/store/saved_batch.h"

namespace tandem {

// The batch of the next step, which waits while the one in progress is trained.
struct UpcomingBatch {
  int64_t step = 0;
  const SampleStore& samples;
  std::vector<MiniBatch> plan;  // of its first epoch
};

// The format is that of store/batch_file.h. One sample is in memory at a time.
class BatchSaver {
 public:
  // All arguments must outlive the saver.
  BatchSaver(const StepContext& context, const TrainOptions& options, const RunPosition& position)
      : context_(context), options_(options), position_(position) {}

  // The newest checkpoint, which the file of a failed step names.
  void SetCheckpoint(const std::string& path) { checkpoint_ = path; }

  // Saves to run_dir/batches, every trainer.save_batch_freq steps. DataLoss: the step's own samples
  // are damaged. Any other failure becomes a message to the user and returns OK, as the run can
  // continue without the file.
  absl::Status SaveDue(const StepBatch& batch);

  // What the step's .samples file ends with: the header of a saved batch (saved_batch.h) with the
  // places of the arrays in that file.
  std::string SamplesIndex(const StepBatch& batch) const;

  // Saves to run_dir/failed_steps. Returns a sentence that names the file, or the reason why there
  // is none.
  std::string SaveFailed(const StepBatch& batch, const std::string& failure);
  // Saves the step and returns `status`, which is not OK, with a message that names the file.
  // `what` names further contents of the file, "" if there are none.
  absl::Status SaveWith(const StepBatch& batch,
                        const absl::Status& status,
                        const std::string& what);
  // As SaveWith where `status` is DataLoss (a ratio or log-prob is wrong); returns any other status
  // as it is.
  absl::Status SaveIfDataLoss(const StepBatch& batch, const absl::Status& status);
  // The same for a failure of the batch that waits while `batch` is trained, under the number of
  // its own step.
  absl::Status SaveIfDataLoss(const StepBatch& batch,
                              const UpcomingBatch& upcoming,
                              const absl::Status& status);

 private:
  // What one file holds. The references must outlive it.
  struct Contents {
    const SampleStore& samples;
    const std::map<uint64_t, SampleRecord>& records;  // by sample id, as far as there are any
    SavedBatchInfo info;
  };
  Contents ContentsOf(const StepBatch& batch) const;
  Contents ContentsOf(const StepBatch& batch, const UpcomingBatch& upcoming) const;
  static absl::Status Save(const std::string& path, const Contents& contents);
  absl::Status SaveFailedTo(const std::string& folder, const Contents& contents) const;
  // As SaveFailed.
  std::string SaveFailure(Contents contents, const std::string& failure) const;
  SavedBatchInfo MakeInfo(const StepBatch& batch) const;

  const StepContext& context_;
  const TrainOptions& options_;
  const RunPosition& position_;
  std::string checkpoint_;
};

}  // namespace tandem
