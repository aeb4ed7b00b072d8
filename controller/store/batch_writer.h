// Writes a saved batch (batch_format.h), whole or not at all, one sample in memory at a time.
#pragma once

#include <memory>
#include <string>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include "controller/store/saved_batch.h"

namespace tandem {

// Not thread-safe. Errors as AtomicFile.
class BatchWriter {
 public:
  static absl::StatusOr<std::unique_ptr<BatchWriter>> Create(const std::string& path);
  ~BatchWriter();

  // InvalidArgument: arrays whose lengths do not fit.
  absl::Status Add(const SavedSample& sample);
  // Nothing is there before this returns OK.
  absl::Status Commit(const SavedBatchInfo& info);

 private:
  struct State;
  explicit BatchWriter(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace tandem
