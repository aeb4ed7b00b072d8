// The metrics partial/* of a step whose samples are generated in rounds.
#pragma once

#include <cstdint>
#include <optional>

#include "controller/partial_rollout/buffer/round_spec.h"
#include "controller/step/step_metrics.h"

namespace tandem {

inline constexpr char kPartialPrefix[] = "partial/";

// Adds the counts of a round to its step's. Rounds in the background, and the one without samples
// that begins a step's counts, are none of the step's own rounds.
void CountRound(bool is_own_round, const RoundCounts& round, StepFacts& facts);

// Records what was generated while the trainers trained.
void CountBackground(int64_t rounds, int64_t tokens, StepFacts& facts);

// Adds the prefilled tokens of one call to Generate; dynamic sampling may make several calls in a
// step. If one of them is unknown, the step has no sum, and `known` becomes false.
void CountPrefilled(const std::optional<int64_t>& tokens, bool* known, StepFacts& facts);

}  // namespace tandem
