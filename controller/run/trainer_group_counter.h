// Numbers the trainers' groups of a run, over restarts of its controller.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include <absl/status/statusor.h>

namespace tandem {

// Keeps the last number in a file, so that numbers grow across restarts and do not depend on the
// clock. Trainers and rollouts refuse calls that carry a smaller number. Not thread-safe; one
// controller at a time (the lock of the run directory).
class TrainerGroupCounter {
 public:
  explicit TrainerGroupCounter(std::string path) : path_(std::move(path)) {}

  // The next number, from 1; it is on disk before this returns. DataLoss: the file holds no number;
  // otherwise as WriteFileAtomically.
  absl::StatusOr<int64_t> Next();

 private:
  const std::string path_;
};

}  // namespace tandem
