// The share of elements that differ from the weights that the rollouts held before.
#pragma once

#include <cstdint>
#include <vector>

#include <absl/status/statusor.h>

#include "common/comm/communicator.h"
#include "trainer_worker/shard/parameter_shard.h"

namespace tandem {

// Elements of a shard as they were: up to 2^20 of its compute copy, all of a small shard, of a
// larger one blocks of 64 bytes spread evenly. Which those are depends on the shard's size alone.
class ElementSample {
 public:
  // Errors here and below: the device's.
  absl::Status Take(ParameterShard& shard);
  void Drop() { values_.clear(); }
  bool taken() const { return !values_.empty(); }
  // Of all elements of the shard, those with other bits than when it was taken, as far as the
  // sample tells: exactly where it holds all.
  absl::StatusOr<double> Changed(ParameterShard& shard) const;

 private:
  static absl::StatusOr<std::vector<std::byte>> Read(ParameterShard& shard);
  std::vector<std::byte> values_;
};

// Since the last version that the rollouts of all ranks committed. With one optimizer step since,
// every element is counted, as it is rounded; with several, or with fp32 weights, where nothing is
// rounded, a sample from before the first of them is compared. Not thread-safe.
class ChangedWeightFraction {
 public:
  // No version is committed.
  void Reset() { *this = {}; }
  // Around every optimizer step. `last`: the next publication comes before the next step.
  // `changed`: elements of this rank, -1: not known.
  absl::Status BeforeStep(ParameterShard& shard, bool last);
  void AfterStep(int64_t changed);
  // Collective, after an attempt to publish `version`; `published`: it succeeded on this rank. The
  // share is the same for every attempt at a version, whether earlier ones were committed or not;
  // 1 for the first version.
  absl::StatusOr<double> Of(int64_t version,
                            bool published,
                            ParameterShard& shard,
                            Communicator& communicator);

 private:
  absl::StatusOr<double> Changed(ParameterShard& shard) const;

  int64_t version_ = -1;  // committed last
  double share_ = 1.0;    // of that one
  int64_t steps_ = 0;     // since
  int64_t changed_ = 0;   // in these steps, added up; -1: not known
  ElementSample before_;  // as it was committed
};

}  // namespace tandem
