// From the resolved configuration to what the parts of the controller take.
#pragma once

#include <string>
#include <vector>

#include <absl/status/status.h>

#include "common/config/config.h"
#include "common/model_spec/model_spec.h"
#include "common/rpc/security.h"
#include "controller/memory_plan.h"
#include "controller/train_options.h"
#include "controller/weight_sync.h"
#include "controller/worker_registry.h"

namespace tandem {

// `eos_ids`: tokens that end a response. `train_rows`: prompts after filtering, from which the
// length of the run follows where it is not given.
TrainOptions MakeTrainOptions(const v1::Config& config,
                              const std::vector<int32_t>& eos_ids,
                              int64_t train_rows);

// InvalidArgument where `total_steps` pass over `train_rows` more often than sample ids can tell
// epochs apart (kTrainEpochs): samples of two epochs would be drawn with the same random numbers.
absl::Status CheckEpochs(const v1::Config& config, int64_t total_steps, int64_t train_rows);

RpcSecurity SecurityOf(const v1::Config& config);

RegistryOptions MakeRegistryOptions(const v1::Config& config, const std::string& tokenizer_digest);

MemoryPlanInput MakeMemoryPlanInput(const v1::Config& config, int64_t device_bytes);

// rollout.free_cache_engine and rollout.sleep_level, with auto decided by the plan.
SleepMode ChooseSleepMode(const v1::Config& config, const MemoryPlan& plan);

CheckMode ParseCheckMode(const std::string& name);

// cluster.compute_threads, 0 resolved: the cores that this process may use divided by the pairs,
// because a trainer and its rollout take turns.
int ComputeThreads(const v1::Config& config);

}  // namespace tandem
