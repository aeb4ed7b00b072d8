// From the resolved configuration to what the parts of the controller take.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <absl/status/status.h>

#include "common/base/build_info.h"
#include "common/config/config.h"
#include "common/model_spec/model_spec.h"
#include "common/net/channel.h"
#include "controller/plan/memory_plan.h"
#include "controller/rollouts/parity_probe.h"
#include "controller/rollouts/weight_reference.h"
#include "controller/rollouts/weight_sync.h"
#include "controller/step/train_options.h"
#include "controller/workers/worker_registry.h"

namespace tandem {

// `eos_ids`: tokens that end a response. `train_rows`: prompts after filtering, from which the
// length of the run follows where it is not given.
TrainOptions MakeTrainOptions(const v1::Config& config,
                              const std::vector<int32_t>& eos_ids,
                              int64_t train_rows);

// With actor.optim.total_training_steps, which the learning rate's schedule spans, where it is not
// given: the optimizer steps of the whole run.
v1::Config ConfigForWorkers(v1::Config config, const TrainOptions& options);

// InvalidArgument where `total_steps` pass over `train_rows` more often than sample ids can tell
// epochs apart (kTrainEpochs): samples of two epochs would be drawn with the same random numbers.
absl::Status CheckEpochs(const v1::Config& config, int64_t total_steps, int64_t train_rows);

RpcSecurity SecurityOf(const v1::Config& config);

// `build`: of the controller.
RegistryOptions MakeRegistryOptions(const v1::Config& config,
                                    const std::string& tokenizer_digest,
                                    const BuildInfo& build);

// `vocab_limit`: ids at or above are no tokens.
ParityProbeOptions MakeProbeOptions(const v1::Config& config, int64_t vocab_limit);

// rollout.free_cache_engine and rollout.sleep_level, as the plan has decided.
SleepMode SleepModeOf(const MemoryPlan& plan);

// weight_sync.check; off with weight_sync.check_only, which checks by itself after the sync.
CheckPolicy MakeCheckPolicy(const v1::WeightSync& sync);
// What checks compare with, for full training or for LoRA.
std::unique_ptr<WeightReference> MakeWeightReference(const v1::Model& model);
ScrambleMode MakeScrambleMode(const v1::WeightSync& sync);

}  // namespace tandem
