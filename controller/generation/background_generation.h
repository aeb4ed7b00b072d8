// Generation for later batches while the trainers train on this one (rollout.partial.overlap).
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include "common/process/threads.h"
#include "controller/data/prompt.h"
#include "controller/partial_rollout/round_runner.h"
#include "controller/rollouts/rollout_dispatcher.h"

namespace tandem {

struct OverlapParts {
  PartialRollout& partial;
  PartialRollout::Draw draw;
  // That serve `version`. One that is lost stays away until the next sync brings it back; its
  // samples stay as they were.
  std::vector<Replica> replicas;
  int64_t max_in_flight_samples = 128;  // per replica
  std::function<bool()> interrupted;
};

// Rounds on a thread of its own, from the construction until End: a round that is whole begins the
// next one, as long as the capacity rule (StalenessLimit) leaves something to generate and it would
// not be cut at once. Pool and prompts are its own meanwhile.
class Overlap {
 public:
  // Rounds of `step` from number `first_round` on.
  Overlap(OverlapParts parts, int64_t step, int64_t first_round, int64_t version);
  // As End, without its outcome.
  ~Overlap();

  // Cuts what runs, waits until it is back and returns how rounds and dispatch went; OK where they
  // were interrupted. Rounds that a journal makes again run as far as they did then.
  absl::Status End();

  // After End: those that are whole.
  const std::vector<RoundCounts>& rounds() const { return rounds_; }

 private:
  absl::Status Run();
  int64_t next_round() const { return first_round_ + static_cast<int64_t>(rounds_.size()); }
  // Whether another round may find something to generate.
  absl::StatusOr<bool> RunRound();

  const OverlapParts parts_;
  const int64_t step_;
  const int64_t first_round_;
  const int64_t version_;
  std::atomic<bool> stop_ = false;
  std::vector<RoundCounts> rounds_;
  absl::Status status_;
  NamedThread thread_;
};

}  // namespace tandem
