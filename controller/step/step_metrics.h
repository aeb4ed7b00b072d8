// The metrics of a step, under verl's names (verl utils metric_utils.py).
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

// Facts of a step whose samples may have tokens of several weight versions.
struct PartialFacts {
  int64_t version = 0;            // weights at the beginning of the step
  double issued_tokens_mean = 0;  // response tokens per sample that was sent to rollouts
};

struct StepFacts {
  int64_t step = 0;
  uint64_t epoch = 0;
  int ranks = 1;    // trainers
  int devices = 1;  // of trainers and rollouts
  int64_t max_response_tokens = 0;
  int64_t max_prompt_tokens = 0;
  int64_t generated_tokens = 0;  // of responses, including dropped ones and greedy baselines
  // Seconds in which they were generated; absent: all of phase "generate". Set only with rounds of
  // partial rollout: a step may have no round, and may wait in that phase for samples that are
  // generated during training, which are not counted.
  std::optional<double> generation_seconds;
  LogProbSummary log_probs;
  std::map<std::string, double> trainer;        // over mini-batches: see AddMiniBatchMetric
  std::map<std::string, int64_t> mini_batches;  // number of mini-batches that have the metric
  std::map<std::string, double> reward_terms;   // means over samples
  std::optional<PartialFacts> partial;          // absent without rollout.partial
};

// Metrics over `samples`, those that are trained on, unless docs/reference/algorithms.md (Metrics)
// says otherwise: critic/*, response_length/*, prompt_length/*, global_seqlen/*, timing_s/*,
// timing_per_token_ms/*, perf/*, training/*; with facts.partial those of AddVersionMetrics; and the
// metrics in `facts`.
std::map<std::string, double> StepMetrics(const StepFacts& facts,
                                          const std::vector<SampleMeta>& samples,
                                          const PhaseRecorder& phases);

// Merges a mini-batch's metric into the step's: the minimum for names *_min, the maximum for names
// *_max, else the sum of `value` times `share`, the mini-batch's share of the step.
void AddMiniBatchMetric(std::map<std::string, double>& metrics,
                        const std::string& name,
                        double value,
                        double share);
// Merges each metric of `mini_batch` into facts.trainer in that way, with two exceptions: means
// over tokens of older weights (partial/stale_ratio_mean, partial/stale_kl) are weighted by the
// number of such tokens, and partial/stale_tokens is that number. For the step's first mini-batch
// (`first`: before any optimizer step), metrics about clipping are also kept separately:
// actor/first_ratio_{min,mean,max}, over tokens of the step's weights only, and
// actor/first_pg_clipfrac.
void AddMiniBatchMetrics(StepFacts& facts,
                         const std::map<std::string, double>& mini_batch,
                         double share,
                         bool first);
// Call after all `updates` mini-batches. A metric that some of them lack (a mini-batch without a
// kept token has no ratios) becomes the mean over those that have it.
void AverageUpdateMetrics(StepFacts& facts, int64_t updates);

// Metrics about the weight versions that sampled `samples`, those that are trained on; 0 where
// there is nothing to count:
//   partial/total_partial_num   samples with tokens of more than one version
//   partial/partial_ratio       their share of the samples
//   partial/max_partial_span    largest newest minus oldest version of a sample
//     (names and values of verl 0.9.1, fully_async_policy)
//   partial/stale_tokens        trained tokens of versions before facts.version, including
//                               those that a rollout correction rejects
//   partial/stale_tokens_share  their share of all trained tokens
//   partial/staleness_mean      facts.version minus the token's version, over the stale tokens
//   partial/staleness_max
//   partial/trained_tokens_mean response tokens per sample
//   partial/issued_tokens_mean  facts.issued_tokens_mean
// Replaces metrics of these names in `metrics`.
void AddVersionMetrics(const PartialFacts& facts,
                       const std::vector<SampleMeta>& samples,
                       std::map<std::string, double>& metrics);

}  // namespace tandem
