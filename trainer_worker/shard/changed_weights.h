// The fraction of weight elements that differ from the version that the rollouts held before.
#pragma once

#include <cstdint>
#include <vector>

#include <absl/status/statusor.h>

#include "common/comm/communicator.h"
#include "trainer_worker/shard/parameter_shard.h"

namespace tandem {

// A sample of a shard's elements at some time: up to 2^20 elements of its compute copy. A small
// shard is sampled completely, a larger one in evenly spread blocks of 64 bytes. Which blocks
// depends on the shard's size alone.
class ElementSample {
 public:
  // Errors of Take and Changed: the device's.
  absl::Status Take(ParameterShard& shard);
  void Drop() { values_.clear(); }
  bool taken() const { return !values_.empty(); }
  // Estimates how many of the shard's elements have other bits than when the sample was taken;
  // exact if the sample holds all elements.
  absl::StatusOr<double> Changed(ParameterShard& shard) const;

 private:
  static absl::StatusOr<std::vector<std::byte>> Read(ParameterShard& shard);
  std::vector<std::byte> values_;
};

// Counts changes since the last version that the rollouts of all ranks committed. After a single
// optimizer step all elements are counted as the step rounds them. After several steps, or with
// fp32 weights, which are not rounded, a sample taken before the first step is compared. Not
// thread-safe.
class ChangedWeightFraction {
 public:
  // Forgets the committed version.
  void Reset() { *this = {}; }
  // Called before and after every optimizer step. `last`: the next publication comes before the
  // next step. `changed`: changed elements of this rank; -1: unknown.
  absl::Status BeforeStep(ParameterShard& shard, bool last);
  void AfterStep(int64_t changed);
  // Collective; called after an attempt to publish `version`. `published`: the attempt succeeded on
  // this rank. The fraction is the same for every attempt at a version, whether earlier ones were
  // committed or not; 1 for the first version.
  absl::StatusOr<double> Of(int64_t version,
                            bool published,
                            ParameterShard& shard,
                            Communicator& communicator);

 private:
  absl::StatusOr<double> Changed(ParameterShard& shard) const;

  int64_t version_ = -1;  // the last committed version
  double share_ = 1.0;    // the changed fraction of that version
  int64_t steps_ = 0;     // optimizer steps since that version
  int64_t changed_ = 0;   // changed elements, summed over these steps; -1: unknown
  ElementSample before_;  // taken before the first of these steps
};

}  // namespace tandem
