// The quickstart's task: additions whose answers can be verified and whose held-out pairs show
// whether the model learned to add or only the training pairs.
#pragma once

#include <cstdint>
#include <string>

#include <absl/status/statusor.h>

namespace tandem {

struct AdditionOptions {
  int64_t max_operand = 20;  // operands are 0..max_operand
  double holdout = 0.2;      // share of the unordered pairs kept out of training
  uint64_t seed = 1;
};

struct AdditionFiles {
  std::string train_path, val_path;
  int64_t train_rows = 0, val_rows = 0;
};

// Writes train.jsonl and val.jsonl into `directory` (made if missing), atomically, the same bytes
// for the same options. A pair {a, b} is held out whole: neither a + b nor b + a is trained on.
// InvalidArgument: options out of range; ResourceExhausted and the like: the disk.
absl::StatusOr<AdditionFiles> MakeAddition(const std::string& directory,
                                           const AdditionOptions& options);

}  // namespace tandem
