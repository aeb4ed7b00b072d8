// What the end of a generation phase costs, where a few long samples run while the slots of all
// others are empty, and what rounds with a cap (rollout.partial.max_tokens_per_round) would save of
// it. Made from what a controller sees of a phase without a cap: lengths and times of arrival.
// Pure and deterministic; docs/partial.md says how far the prediction was from measurements.
//
// Assumptions of the prediction:
// - slots are filled in the order of issue and never empty while a sample waits (no preemption, no
//   shortage of KV blocks), on all replicas as on one with all their slots;
// - an engine step costs `step` seconds and each token that it computes `token` seconds more, be it
//   sampled or prefilled; where it stands in its sequence makes no difference;
// - the next steps draw samples of the same lengths, and a cut does not change a length;
// - a round costs nothing but its engine steps; scoring, sync and training are the same.
#pragma once

#include <cstdint>
#include <vector>

namespace tandem {

struct TailSample {
  int64_t group = 0;
  int64_t prompt_tokens = 0;
  int64_t response_tokens = 0;
  double arrived = 0;  // seconds from the start of the pass
};

// Samples that were issued together.
struct TailPass {
  std::vector<TailSample> samples;  // in the order of issue; those of a group side by side
  int64_t slots = 1;   // samples that run at once, of all replicas together; at least 1
  double seconds = 0;  // until all had come and the phase went on
};

// Slots count as empty from the moment when fewer samples are left than there are slots: with
// C = min(slots, samples), each of the last C arrivals leaves one empty until the end.
struct EmptySlots {
  double slot_seconds = 0;
  double capacity = 0;  // C x seconds
  double share() const { return capacity > 0 ? slot_seconds / capacity : 0; }
};
EmptySlots EmptyOfTail(const TailPass& pass);

// Seconds, neither below 0.
struct EngineCost {
  double step = 0;
  double token = 0;
};
// Least squares of t = step * steps + token * tokens over the arrivals, with steps and tokens up to
// each of a replay of the slots (slot_schedule.h). Where one of them would be negative, that of
// the two which explains more alone; where the arrivals do not tell them apart, as when all
// samples are equally long, all is charged to tokens, so that nothing is promised.
EngineCost FitEngineCost(const TailPass& pass);

// Seconds of a phase that fills one batch, both by the model: its error is in both.
struct CapPrediction {
  double whole_seconds = 0;    // without a cap
  double capped_seconds = 0;   // with it, in the mean over steps
  double rounds = 0;           // of a step: the mean number of rounds that a group takes
  double prefilled_again = 0;  // tokens of a step
  double saved() const { return whole_seconds - capped_seconds; }  // below 0: it costs
};
// `cap`: new tokens of a sample in one round, at least 1; `max_versions` as in rollout.partial. All
// 0 where there are no samples, or where so small a cap leaves no group whole for 1024 rounds.
CapPrediction PredictCap(const TailPass& pass,
                         const EngineCost& cost,
                         int64_t cap,
                         int64_t max_versions);

// The nearest-rank percentile: the ceil(share * n)-th smallest value, so one that is there. `share`
// in (0, 1]; 0 where there are no values.
int64_t NearestRank(std::vector<int64_t> values, double share);

}  // namespace tandem
