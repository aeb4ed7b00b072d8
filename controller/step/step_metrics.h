// The numbers of a step, under verl's names (verl utils metric_utils.py).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "controller/step/phase_recorder.h"
#include "controller/store/progress.h"
#include "controller/store/sample_store.h"

namespace tandem {

// Of a step whose samples may have tokens of several weight versions.
struct PartialFacts {
  int64_t version = 0;            // weights that the step began with
  double issued_tokens_mean = 0;  // response tokens of a sample that was sent to rollouts
};

struct StepFacts {
  int64_t step = 0;
  uint64_t epoch = 0;
  int ranks = 1;
  int64_t max_response_tokens = 0;
  int64_t max_prompt_tokens = 0;
  int64_t generated_tokens = 0;  // of responses: also dropped ones and greedy baselines
  // In which they were generated; absent: all of phase generate. Rounds of partial rollout alone
  // are: a step may have none, and may wait in that phase for samples beside training, which are
  // not counted.
  std::optional<double> generation_seconds;
  LogProbComparison log_probs;
  std::map<std::string, double> trainer;        // over mini-batches: see AddMiniBatchMetric
  std::map<std::string, int64_t> mini_batches;  // how many of them have a number
  std::map<std::string, double> reward_terms;   // means over samples
  std::optional<PartialFacts> partial;          // absent without rollout.partial
};

// Of `samples`, those that are trained on, unless said (docs/reference/algorithms.md, Metrics):
// critic/*, response_length/*, prompt_length/*, global_seqlen/*, timing_s/*, timing_per_token_ms/*,
// perf/*, training/*, with facts.partial those of AddVersionMetrics, and what is in `facts`.
std::map<std::string, double> StepMetrics(const StepFacts& facts,
                                          const std::vector<SampleMeta>& samples,
                                          const PhaseRecorder& phases);

// Takes a mini-batch's number into those of its step: the least of those named *_min, the largest
// of those named *_max, else the sum of `value` times `share`, the mini-batch's part of the step.
void AddMiniBatchMetric(std::map<std::string, double>& metrics,
                        const std::string& name,
                        double value,
                        double share);
// Each of `mini_batch` so, into facts.trainer; means over tokens of older weights
// (partial/stale_ratio_mean, partial/stale_kl) are of all such tokens of the mini-batches so far,
// and partial/stale_tokens is their number. Of the step's first mini-batch (`first`: before any
// optimizer step) what clipping is about is kept apart, too: actor/first_ratio_{min,mean,max}, of
// tokens of the step's weights alone, and actor/first_pg_clipfrac.
void AddMiniBatchMetrics(StepFacts& facts,
                         const std::map<std::string, double>& mini_batch,
                         double share,
                         bool first);
// After all `updates` mini-batches: a number that some of them lack, as a mini-batch without a kept
// token lacks ratios, becomes the mean over those that have it.
void AverageOverThoseThatHave(StepFacts& facts, int64_t updates);

// What the samples of a step say of the weights that sampled them, where a sample may have tokens
// of several versions.

// Of `samples`, those that are trained on; 0 where there is nothing to count:
//   partial/total_partial_num   samples with tokens of more than one version
//   partial/partial_ratio       their share of the samples
//   partial/max_partial_span    largest newest minus oldest version of a sample
//     (names and numbers of verl 0.9.1, fully_async_policy)
//   partial/stale_tokens        trained tokens of versions before facts.version; also those that a
//                               rollout correction rejects
//   partial/stale_tokens_share  of all trained tokens
//   partial/staleness_mean      facts.version minus the token's version, over the stale tokens
//   partial/staleness_max
//   partial/trained_tokens_mean response tokens of a sample; facts.issued_tokens_mean stands beside
//                               it as partial/issued_tokens_mean
// They replace what stands in `metrics` by those names.
void AddVersionMetrics(const PartialFacts& facts,
                       const std::vector<SampleMeta>& samples,
                       std::map<std::string, double>& metrics);

}  // namespace tandem
