// Compares what a rollout holds with what it should hold, tensor by tensor (CheckWeights).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <absl/status/statusor.h>

#include "common/weights/digest.h"
#include "common/weights/layout.h"
#include "common/weights/manifest.h"
#include "common/weights/weight_publisher.h"

namespace tandem {

struct HeldWeights {
  int64_t version = -1;
  Manifest manifest;
  std::vector<Digest> digests;  // manifest order
};

// What a rollout can be asked about its weights.
class WeightReader {
 public:
  virtual ~WeightReader() = default;
  virtual absl::StatusOr<HeldWeights> Digests() = 0;
  // Rows of a tensor, dense; at most 1 MiB.
  virtual absl::StatusOr<std::string> Read(const std::string& name, int64_t row, int64_t rows) = 0;
};

struct WeightCheckReport {
  int64_t version = -1;  // that the rollout holds
  int64_t checked = 0;
  int64_t missing = 0;     // the rollout lacks it
  int64_t unexpected = 0;  // only the rollout has it
  int64_t mismatched = 0;
  std::string first_difference;  // tensor, index and both values
  bool ok() const { return missing == 0 && unexpected == 0 && mismatched == 0; }
};

// Gathers every tensor of `layout` from `source` and compares. A null reader only gathers, as ranks
// without a rollout to check must. `source` is asked for every tensor even after the reader failed.
absl::StatusOr<WeightCheckReport> CheckWeights(const WeightLayout& layout,
                                               TensorSource& source,
                                               WeightReader* reader);

}  // namespace tandem
