// The index of a run: what happened in each step, and which samples it had.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include "controller/store/records.h"

namespace tandem {

struct SampleRecordPage {
  std::vector<SampleRecord> samples;
  int64_t total = 0;
};

// Thread-safe: the train loop writes while users read. Rows are durable when a call returns;
// recording a step again (a replay after a fault) replaces its rows.
class RunStore {
 public:
  virtual ~RunStore() = default;

  virtual absl::Status RecordRun(const RunInfo& info) = 0;
  virtual absl::Status RecordStep(const StepRecord& step) = 0;
  // All samples of one step, in order of sample id.
  virtual absl::Status RecordSamples(int64_t step, const std::vector<SampleRecord>& samples) = 0;
  virtual absl::Status RecordEvaluation(const EvaluationRecord& evaluation) = 0;
  // Forgets everything after `step`: a run that goes on from a checkpoint starts there.
  virtual absl::Status TruncateAfter(int64_t step) = 0;

  // first_step <= step <= last_step, oldest first; last_step 0: to the newest.
  virtual absl::StatusOr<std::vector<StepRecord>> ListSteps(int64_t first_step,
                                                            int64_t last_step) = 0;
  virtual absl::StatusOr<SampleRecordPage> ListSamples(int64_t step,
                                                       int64_t limit,
                                                       int64_t offset) = 0;
  virtual absl::StatusOr<std::vector<EvaluationRecord>> ListEvaluations() = 0;
};

}  // namespace tandem
