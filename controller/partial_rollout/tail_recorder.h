// Watches the generation of a step: when each sample came, and what the tail cost.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include <absl/time/time.h>

#include "common/base/clock.h"
#include "common/types/sample.h"
#include "controller/partial_rollout/tail_model.h"

namespace tandem {

// A cap to predict the saving of.
struct PredictedCap {
  std::string name;  // of its metric: split_2
  int64_t tokens = 1;
};

struct TailOptions {
  int64_t slots = 1;               // rollout.max_num_seqs of all replicas together
  int64_t max_versions = 8;        // rollout.partial.max_versions
  std::vector<PredictedCap> caps;  // none where rounds have a cap already
};

// One per step; any number of passes (batches of dynamic sampling, rounds). Not thread-safe.
class TailRecorder {
 public:
  // `clock` must outlive it.
  explicit TailRecorder(Clock& clock) : clock_(clock) {}

  // A pass begins; the one before, if any, has ended.
  void Begin();
  // A sample of the pass is complete, in whatever order they come.
  void Arrived(const Sample& sample);
  // All samples of the pass have come.
  void End();

  // Of all passes that ended with a sample.
  double seconds() const;

  // partial/tail_empty_slot_seconds and partial/tail_share (tail_model.h), of all passes together,
  // and partial/predicted_saving_s/NAME of each cap: seconds of the passes' own, below 0 where the
  // cap would cost time. Nothing where no pass has ended with a sample.
  void Report(const TailOptions& options, std::map<std::string, double>& metrics) const;

 private:
  struct Arrival {
    int64_t index = 0;  // inside its group
    TailSample sample;
  };
  Clock& clock_;
  absl::Time begun_;
  std::vector<Arrival> arrivals_;  // of the running pass
  std::vector<TailPass> passes_;   // slots are set by Report
};

}  // namespace tandem
