// Generates for later steps while the trainers train on the current one (rollout.partial.overlap,
// trainer.off_policy_steps).
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <limits>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include "common/base/clock.h"
#include "common/process/threads.h"
#include "controller/partial_rollout/buffer/round_spec.h"
#include "controller/partial_rollout/round_runner.h"
#include "controller/rollouts/rollout_dispatcher.h"

namespace tandem {

struct BackgroundGenerationParts {
  RoundRunner& runner;
  StalenessLimit limit;
  RoundRunner::Draw draw;
  // Replicas that serve the weight version. A replica that is lost stays away until the next weight
  // sync brings it back; its samples keep the tokens they had before the round.
  std::vector<Replica> replicas;
  int64_t max_in_flight_samples = 128;                        // per replica
  int64_t vocab_limit = std::numeric_limits<int32_t>::max();  // RolloutDispatcher::Options
  std::function<bool()> interrupted;
  // RoundRunner::EndRound, which waits for a disk that refuses the journal; called by End.
  std::function<absl::Status()> end_round;
  Clock& clock;  // must outlive it
};

// Runs rounds on a thread of its own from construction until End. The next round begins as soon as
// one is complete, while StalenessLimit admits groups and nothing asks the round to end. Where a
// disk refuses the journal of a round, that round is the last: End waits for the disk, and the
// trainers need not. The thread alone uses the round runner and the prompts until End returns.
class BackgroundGeneration {
 public:
  // Rounds of `step`, numbered from `first_round`.
  BackgroundGeneration(BackgroundGenerationParts parts,
                       int64_t step,
                       int64_t first_round,
                       int64_t version);
  // Interrupts the round in progress and waits for it; its error and journal are dropped.
  ~BackgroundGeneration();

  // Interrupts the round in progress and waits for it, and for a disk that refused its journal.
  // Returns the first error of a round, or OK where the rounds were only interrupted. A round that
  // the journal replays runs as far as it did the first time.
  absl::Status End();

  // Waits for the round in progress to end by itself, with the same results as End. Nothing is
  // generated afterwards.
  absl::Status Finish();

  // Counts of the completed rounds. Valid after End or Finish.
  const std::vector<RoundCounts>& rounds() const { return rounds_; }
  // When the last round ended. Valid after End or Finish.
  Instant ended_at() const { return ended_at_; }

 private:
  void Join();
  absl::Status Result();
  absl::Status Run();
  int64_t next_round() const { return first_round_ + static_cast<int64_t>(rounds_.size()); }
  // False: another round would find nothing to generate, no replica that generates, or a disk that
  // refuses its journal.
  absl::StatusOr<bool> RunRound();

  const BackgroundGenerationParts parts_;
  const int64_t step_;
  const int64_t first_round_;
  const int64_t version_;
  std::atomic<bool> stop_ = false;
  std::vector<RoundCounts> rounds_;
  bool unwritten_ = false;  // a disk refused the journal of the last round
  absl::Status status_;
  Instant ended_at_;
  NamedThread thread_;
};

}  // namespace tandem
