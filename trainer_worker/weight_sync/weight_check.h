// Compares the weights of a rollout with those that it should hold, tensor by tensor
// (CheckWeights).
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

// Reads a rollout's weights.
class WeightReader {
 public:
  virtual ~WeightReader() = default;
  virtual absl::StatusOr<HeldWeights> Digests() = 0;
  // Rows of a tensor, dense; at most 1 MiB.
  virtual absl::StatusOr<std::string> Read(const std::string& name, int64_t row, int64_t rows) = 0;
};

// The weights that a rollout should hold: the trainers' masters (calls are then collective) or a
// checkpoint.
class ExpectedWeights {
 public:
  virtual ~ExpectedWeights() = default;
  // Dense row-major rows in the layout's dtype, at most RowsPerRange(row_bytes) of them, valid
  // until the next call.
  virtual absl::StatusOr<const void*> Rows(const TensorRows& rows) = 0;
  // Exchanges `mine` with all ranks that must make the same calls; returns `mine` alone if calls
  // are not collective.
  virtual absl::StatusOr<std::vector<int64_t>> ExchangeCounts(int64_t mine) = 0;
};

// Counts source tensors by HF name: q, k and v separately, a tied head once.
struct WeightCheckReport {
  int64_t version = -1;  // the version that the rollout holds
  int64_t expected = 0;  // number of tensors in the layout
  int64_t checked = 0;
  int64_t missing = 0;     // the rollout lacks the tensor
  int64_t unexpected = 0;  // only the rollout has the tensor
  int64_t mismatched = 0;
  std::string first_difference;  // tensor, index and both values
  // Names of missing, unexpected and mismatched tensors, the first kNamedTensors.
  std::vector<std::string> differing;
  static constexpr size_t kNamedTensors = 64;
  bool ok() const {
    return checked == expected && missing == 0 && unexpected == 0 && mismatched == 0;
  }
};

// Gathers every tensor of `layout` from `source`, range by range, and compares digests; the first
// tensor that differs is gathered again to find the element. With a null reader only gathers, as
// ranks without a rollout to check must; that report is not ok. Gathers every tensor even after the
// reader has failed.
absl::StatusOr<WeightCheckReport> CheckWeights(const WeightLayout& layout,
                                               ExpectedWeights& source,
                                               WeightReader* reader);

}  // namespace tandem
