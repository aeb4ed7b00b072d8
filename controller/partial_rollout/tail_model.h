// Estimates what the end of a generation phase costs, when a few long samples still run and all
// other slots are empty, and how much of that cost rounds with a cap
// (rollout.partial.max_tokens_per_round) would save. It uses what a controller sees of a phase
// without a cap: lengths and times of arrival. Pure and deterministic.
// docs/guides/partial_rollout.md compares the prediction with measurements.
//
// Assumptions of the prediction:
// - slots are filled in the order of issue and never empty while a sample waits (no preemption, no
//   shortage of KV blocks), on all replicas as on one with all their slots;
// - an engine step costs `step` seconds and each token that it computes `token` seconds more, be it
//   sampled or prefilled; where it stands in its sequence makes no difference;
// - the next steps draw samples of the same lengths, and an interruption does not change a length;
// - a round costs nothing but its engine steps; scoring, sync and training are the same.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include <absl/time/time.h>

#include "common/base/clock.h"
#include "common/types/sample.h"

namespace tandem {

struct TailSample {
  int64_t group = 0;
  int64_t prompt_tokens = 0;
  int64_t response_tokens = 0;
  double arrived = 0;  // seconds from the start of the pass
};

// Samples that are issued together.
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
// Least squares of t = step * steps + token * tokens over the arrivals, with the steps and tokens
// up to each arrival from a replay of the slots (SlotReplay). If one of the two would be negative,
// only the one that explains more on its own is used. If the arrivals cannot tell the two apart,
// for example because all samples are equally long, all time is charged to tokens, so that no
// saving is predicted.
EngineCost FitEngineCost(const TailPass& pass);

// Seconds of a phase that fills one batch. Both are predicted, so that both have the error of the
// model.
struct CapPrediction {
  double whole_seconds = 0;    // without a cap
  double capped_seconds = 0;   // with the cap, as a mean over steps
  double rounds = 0;           // per step: the mean number of rounds that a group takes
  double prefilled_again = 0;  // tokens per step
  double saved() const { return whole_seconds - capped_seconds; }  // below 0: it costs
};
// `cap`: new tokens of a sample in one round, at least 1; `max_versions` as in rollout.partial. All
// values are 0 if there are no samples, or if the cap is so small that no group is completed in
// 1024 rounds.
CapPrediction PredictCap(const TailPass& pass,
                         const EngineCost& cost,
                         int64_t cap,
                         int64_t max_versions);

// The nearest-rank percentile: the ceil(share * n)-th smallest value, which is one of the values.
// `share` is in (0, 1]. 0 if there are no values.
int64_t NearestRank(std::vector<int64_t> values, double share);

// Watches the generation of a step: when each sample arrived, and what the tail cost.

// A cap whose saving is predicted.
struct PredictedCap {
  std::string name;  // of its metric: split_2
  int64_t tokens = 1;
};

struct TailOptions {
  int64_t slots = 1;               // rollout.max_num_seqs of all replicas together
  int64_t max_versions = 8;        // rollout.partial.max_versions
  std::vector<PredictedCap> caps;  // empty if rounds have a cap already
};

// One per step; any number of passes (batches of dynamic sampling, rounds). Not thread-safe.
class TailRecorder {
 public:
  // `clock` must outlive it.
  explicit TailRecorder(Clock& clock) : clock_(clock) {}

  // Begins a pass; an earlier one must have ended.
  void Begin();
  // Call when a sample of the pass is complete; any order of samples.
  void Arrived(const Sample& sample);
  // Call when all samples of the pass have arrived.
  void End();

  // The duration of all passes that ended with a sample.
  double seconds() const;

  // Adds partial/tail_empty_slot_seconds and partial/tail_share, over all passes together, and
  // partial/predicted_saving_s/NAME for each cap: the seconds of these passes that it would save,
  // below 0 if it would cost time. Adds nothing if no pass has ended with a sample.
  void Report(const TailOptions& options, std::map<std::string, double>& metrics) const;

 private:
  struct Arrival {
    int64_t index = 0;  // inside its group
    TailSample sample;
  };
  Clock& clock_;
  Instant begun_;
  std::vector<Arrival> arrivals_;  // of the running pass
  std::vector<TailPass> passes_;   // slots are set by Report
};

// Replays one pass on an engine with a number of slots, each of which takes the next sample as soon
// as it is free: continuous batching, first come first served, with known lengths. Pure: no clock,
// no threads; equal jobs give equal replays.

// One sample of a pass.
struct SlotJob {
  int64_t prefill = 0;  // tokens computed when it gets its slot
  int64_t tokens = 0;   // engine steps that it keeps the slot, one new token in each
};

// The engine's work up to a moment.
struct EngineWork {
  int64_t steps = 0;   // engine steps since the start of the pass
  int64_t tokens = 0;  // tokens computed since then, prefilled ones included
};

struct SlotReplay {
  std::vector<EngineWork> ends;  // up to the end of jobs[i]
  EngineWork all;                // up to the end of all jobs
};

// Jobs take slots in their order. `slots`: at least 1. O(jobs log slots).
SlotReplay ReplaySlots(const std::vector<SlotJob>& jobs, int64_t slots);

// Replays rounds of partial rollout with known lengths: the work of the engine, step after step, if
// every step drew groups of the same lengths. Pure and deterministic.

// A prompt and its samples, each with the length that it has if nothing interrupts it.
struct ReplayGroup {
  int64_t prompt_tokens = 0;
  std::vector<int64_t> lengths;  // response tokens
};

struct RoundRules {
  int64_t cap = 1;  // new tokens of a sample in one round: rollout.partial.max_tokens_per_round
  int64_t max_versions =
      8;  // rollout.partial.max_versions: under the last of them a sample runs to its end
  int64_t slots = 1;  // samples that run at the same time
};

struct RoundTotals {
  int64_t rounds = 0;
  int64_t whole_groups = 0;     // that those rounds finished
  int64_t steps = 0;            // of the engine
  int64_t tokens = 0;           // computed, prefilled ones included
  int64_t prefilled_again = 0;  // of those: prompts and prefixes of carried samples
};

// A round issues as many groups as `groups` has (a batch): carried ones first, oldest first, then
// fresh ones, which cycle through `groups`. A batch of complete groups ends the step and, with it,
// the weight version; otherwise the next round has the same version. Counting starts when groups of
// every age are carried and covers kCountedRounds rounds, more if no group was completed in them,
// but at most kMostRounds (then whole_groups is 0).
inline constexpr int64_t kCountedRounds = 48;  // a multiple of 2, 3 and 4: whole cycles of splits
inline constexpr int64_t kMostRounds = 1024;
RoundTotals ReplayRounds(const std::vector<ReplayGroup>& groups, const RoundRules& rules);

}  // namespace tandem
