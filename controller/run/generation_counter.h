// Numbers the trainers' groups of a run, over restarts of its controller.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include <absl/status/statusor.h>

namespace tandem {

// Keeps the last number in a file, so that every number is larger than all before it whatever
// happens to the machine's date or to the controller. Trainers and rollouts refuse what belongs to
// a smaller number. Not thread-safe; one controller at a time (the lock of the run directory).
class GenerationCounter {
 public:
  explicit GenerationCounter(std::string path) : path_(std::move(path)) {}

  // The next number, from 1; it is on disk before this returns. DataLoss: the file holds no number;
  // otherwise as WriteFileAtomically.
  absl::StatusOr<int64_t> Next();

 private:
  const std::string path_;
};

}  // namespace tandem
