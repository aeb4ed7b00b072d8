// The weights that a trainer trains, computes with and sends. MakeTrainedWeights chooses the kind
// once: all weights of the model, adapters that are merged into the base where rows are read
// (merged_lora.h), or adapters that stay separate from it (adapter_lora.h).
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include <absl/status/statusor.h>

#include "common/comm/ordered_communicator.h"
#include "common/memory/worker_memory.h"
#include "common/model_spec/model_spec.h"
#include "common/types/lora_options.h"
#include "common/weights/manifest.h"
#include "common/weights/weight_transport.h"
#include "trainer_worker/layers/gradient_accumulator.h"
#include "trainer_worker/shard/optimizer.h"
#include "trainer_worker/shard/parameter_shard.h"
#include "trainer_worker/shard/weight_rows.h"
#include "trainer_worker/trained_weights/checkpoint.h"
#include "trainer_worker/weight_sync/weight_check.h"
#include "trainer_worker/weight_sync/weight_publisher.h"

namespace tandem {

struct TrainedWeightsOptions {
  std::string model_dir;
  std::string offload_dir;  // the folder for files of offloaded memory; must exist
  bool offload_master = false;
  bool offload_moments = false;
  bool offload_reference = false;
  LoraOptions lora;                      // rank 0: train all weights
  WeightTransport* transport = nullptr;  // for weight syncs
};

// The model, shard plan, compute and communicator of one rank. All outlive the weights, except that
// `communicator` may be destroyed before them.
struct RankContext {
  // The model as it is computed, including adapters that stay separate.
  const ModelSpec* spec = nullptr;
  const ShardPlan* plan = nullptr;  // of that model's layout
  ShardCompute compute;
  OrderedCommunicator* communicator = nullptr;
  Ledger* ledger = nullptr;
};

struct LoadRequest {
  std::string checkpoint_dir;  // empty: training starts from the model's files
  int64_t version = 0;         // the version that the checkpoint must hold
  // LoRA: the folder of initial adapters in PEFT's format; empty: initialise them from `seed`.
  std::string adapter_path;
  uint64_t seed = 1;
  bool keep_reference = false;  // the model's files also become the reference policy
};

// Lifecycle: Make → Load, or masters written by the caller → OnWeightsChanged → all other calls.
// Not thread-safe: used by the engine thread.
class TrainedWeights {
 public:
  virtual ~TrainedWeights() = default;

  // The shard that the optimizer steps: the model, or its adapters.
  virtual ParameterShard& trained() = 0;
  // The rows that the layers read, rounded to the compute dtype.
  virtual WeightRows& policy() = 0;
  // The rows of the HF export, with adapters merged in.
  virtual WeightRows& exported() = 0;
  // The frozen reference policy. FailedPrecondition: none is kept.
  virtual absl::StatusOr<WeightRows*> reference() = 0;
  // Keeps the current weights as the reference policy (tag reference), in a file with
  // offload_reference. Under LoRA the base is the reference, and nothing is copied.
  virtual absl::Status FreezeReference() = 0;
  virtual GradientAccumulator& gradients() = 0;

  // Collective: makes new values of trained() visible in policy(), exports and syncs.
  virtual absl::Status OnWeightsChanged() = 0;
  // The rows and digests of a weight sync; the weights outlive the source.
  virtual std::unique_ptr<WeightSource> MakeWeightSource() = 0;
  // The smallest update that suffices for a rollout which holds an earlier version.
  virtual UpdateScope smallest_update() const { return UpdateScope::kWhole; }
  // The rows that a rollout should hold: those of a checkpoint's directory or, if that is empty,
  // the trainer's own. Collective if all weights are trained.
  virtual absl::StatusOr<std::unique_ptr<ExpectedWeights>> OpenExpected(
      const std::string& directory) = 0;

  // Collective: reads trained() and all frozen weights from files. OnWeightsChanged must follow.
  // Errors as HfCheckpoint, LoadState and PeftAdapter; Aborted: another rank failed.
  virtual absl::Status Load(const LoadRequest& request, Optimizer& optimizer) = 0;
  // Collective: writes a checkpoint; fills in the settings and masters of `options`. Returns the
  // bytes that this rank wrote of the training state and the export. Errors as SaveState.
  virtual absl::StatusOr<int64_t> Save(SaveOptions options, const Optimizer& optimizer) = 0;

  // Sets the options of the memory plan that depend on the kind of weights.
  virtual void DescribeMemory(TrainerMemoryOptions& options) const = 0;
};

// Allocates the memory; values are 0 until Load. `base` is the model without adapters.
// ResourceExhausted names the region that does not fit; InvalidArgument names adapter targets that
// the model does not have; FailedPrecondition: dropout on a GPU.
absl::StatusOr<std::unique_ptr<TrainedWeights>> MakeTrainedWeights(
    const TrainedWeightsOptions& options, const ModelSpec& base, const RankContext& rank);

}  // namespace tandem
