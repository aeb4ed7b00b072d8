// What the samples of a step say of the weights that sampled them, where a sample may have tokens
// of several versions.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "controller/step/step_metrics.h"
#include "controller/store/sample_store.h"

namespace tandem {

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
