// A stream that has the samples which a test gives it.
#pragma once

#include <string>
#include <vector>

#include "trainer_worker/trainer.h"

namespace tandem::testing {

// Trains on what it is given.
class GivenSamples final : public SampleStream {
 public:
  absl::StatusOr<std::vector<Sample>> Pull(int64_t, int64_t) override { return samples; }
  absl::StatusOr<std::vector<Sample>> PullProbe(int64_t) override { return samples; }
  absl::Status PutLogProbs(int64_t, const std::string&, const LogProbsBySample&) override {
    return absl::OkStatus();
  }
  std::vector<Sample> samples;
};

}  // namespace tandem::testing
