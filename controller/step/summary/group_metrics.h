// What is told of a step's samples: how their rewards spread, over all and within groups, two that
// show it, and how full the rollouts were that generated them.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/types/worker_load.h"
#include "controller/store/progress.h"
#include "controller/store/run_store.h"
#include "controller/store/sample_store.h"

namespace tandem {

// Of the samples of one group, at least one.
GroupKind KindOfGroup(const std::vector<const SampleRecord*>& group);

// What is recorded of a group, of at least one sample.
GroupRecord RecordOfGroup(int64_t number, const std::vector<const SampleRecord*>& group);

// The groups of a step's samples, in order of their number.
std::vector<GroupRecord> GroupsOf(const std::vector<SampleRecord>& records);

// critic/rewards/std, critic/rewards/ci95 and critic/groups/* (controller/store/run_store.h) of the
// samples that are trained on. `metas` and `records` are of the same samples. A standard deviation
// or an interval that needs a second sample or prompt is left out.
std::map<std::string, double> GroupMetrics(const std::vector<SampleMeta>& metas,
                                           const std::vector<SampleRecord>& records);

// The samples of StepDetails::samples: best and worst of the group whose rewards differ most, of
// equal ones the first. Where no group is mixed, those of the step; where all rewards are equal,
// the first sample alone. Lines that all prompts of the step begin with, such as a system prompt,
// are left out of the prompts.
std::vector<SampleRecord> ContrastingSamples(const std::vector<SampleRecord>& records);

// Writes the largest share of KV blocks and the most waiting samples to `details`, of the rollouts
// under the weights of `version`. Nothing if a rollout has not told them yet: heartbeats may come
// after the end of a short step.
void AddGenerationLoad(const std::vector<std::optional<GeneratorLoad>>& loads,
                       int64_t version,
                       StepDetails& details);

}  // namespace tandem
