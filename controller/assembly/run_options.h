// Derives the options of the controller's parts from the resolved configuration.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include "common/base/build_info.h"
#include "common/config/config.h"
#include "common/model_spec/model_spec.h"
#include "common/net/channel.h"
#include "controller/assembly/run_inputs.h"
#include "controller/plan/memory_plan.h"
#include "controller/rollouts/parity_probe.h"
#include "controller/rollouts/weight_check_files.h"
#include "controller/rollouts/weight_sync.h"
#include "controller/step/train_options.h"
#include "controller/workers/agents/agent_registry.h"
#include "controller/workers/worker_registry.h"

namespace tandem {

// The options of a run with these inputs. Errors as CheckEpochs.
absl::StatusOr<TrainOptions> CheckedTrainOptions(const v1::Config& config, const RunInputs& inputs);

// `eos_ids`: tokens that end a response. `train_rows`: prompts after filtering, which determine the
// length of the run where the configuration does not set it.
TrainOptions MakeTrainOptions(const v1::Config& config,
                              const std::vector<int32_t>& eos_ids,
                              int64_t train_rows);

// Sets actor.optim.total_training_steps, the span of the learning rate schedule, to the optimizer
// steps of the complete run where the configuration does not set it.
v1::Config ConfigForWorkers(v1::Config config, const TrainOptions& options);

// InvalidArgument: `total_steps` pass over `train_rows` more often than sample ids can distinguish
// epochs (kTrainEpochs), so that samples of two epochs would use the same random numbers.
absl::Status CheckEpochs(const v1::Config& config, int64_t total_steps, int64_t train_rows);

RpcSecurity MakeRpcSecurity(const v1::Config& config);

// `build`: the controller's.
AgentRegistryOptions MakeAgentOptions(const v1::Config& config, const BuildInfo& build);

// `build` and `host`: the controller's.
RegistryOptions MakeRegistryOptions(const v1::Config& config,
                                    const std::string& tokenizer_digest,
                                    const BuildInfo& build,
                                    const HostId& host);

// `vocab_limit`: token ids are below it.
ParityProbeOptions MakeProbeOptions(const v1::Config& config, int64_t vocab_limit);

// The values of rollout.free_cache_engine and rollout.sleep_level that the plan has decided on.
SleepMode ChooseSleepMode(const MemoryPlan& plan);

// weight_sync.check: which syncs of a training run are checked.
CheckPolicy MakeCheckPolicy(const v1::WeightSync& sync);
// What checks compare with, for full training or for LoRA.
std::unique_ptr<WeightCheckFiles> MakeWeightCheckFiles(const v1::Config& config);
ScrambleMode MakeScrambleMode(const v1::WeightSync& sync);

}  // namespace tandem
