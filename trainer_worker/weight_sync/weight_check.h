// Compares what a rollout holds with what it should hold, tensor by tensor (CheckWeights).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <absl/status/statusor.h>

#include "common/weights/digest.h"
#include "common/weights/layout.h"
#include "common/weights/manifest.h"
#include "trainer_worker/weight_sync/weight_publisher.h"

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

// What a rollout should hold: the trainers' masters (calls are collective then) or a checkpoint.
class ReferenceWeights {
 public:
  virtual ~ReferenceWeights() = default;
  // Dense row-major rows in the layout's dtype, at most RowsPerRange(row_bytes), valid until the
  // next call.
  virtual absl::StatusOr<const void*> Rows(const TensorRows& rows) = 0;
  // The numbers of all ranks that must make the same calls as this one; `mine` alone if none must.
  virtual absl::StatusOr<std::vector<int64_t>> ExchangeCounts(int64_t mine) = 0;
};

// Counts source tensors, by HF name: q, k and v apart, a tied head once.
struct WeightCheckReport {
  int64_t version = -1;  // that the rollout holds
  int64_t expected = 0;  // tensors that there should be
  int64_t checked = 0;
  int64_t missing = 0;     // the rollout lacks it
  int64_t unexpected = 0;  // only the rollout has it
  int64_t mismatched = 0;
  std::string first_difference;        // tensor, index and both values
  std::vector<std::string> differing;  // names of all three kinds, the first kNamedTensors
  static constexpr size_t kNamedTensors = 64;
  bool ok() const {
    return checked == expected && missing == 0 && unexpected == 0 && mismatched == 0;
  }
};

// Takes every tensor of `layout` from `oracle`, range by range, and compares digests; the first
// tensor that differs is taken once more, to find the element. A null reader only gathers, as ranks
// without a rollout to check must; that report is not ok. `oracle` is asked for every tensor even
// after the reader failed.
absl::StatusOr<WeightCheckReport> CheckWeights(const WeightLayout& layout,
                                               ReferenceWeights& oracle,
                                               WeightReader* reader);

}  // namespace tandem
