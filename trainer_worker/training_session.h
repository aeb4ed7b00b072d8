// The state of a trainer rank from one Reset to the next: the communicator, the shard, and the
// objects that compute with them.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include <absl/status/statusor.h>

#include "common/comm/ordered_communicator.h"
#include "common/device/ledger.h"
#include "common/memory/memory_formulas.h"
#include "common/model/decoder.h"
#include "trainer_worker/forward_backward/mini_batch.h"
#include "trainer_worker/layers/layer_source.h"
#include "trainer_worker/shard/optimizer.h"
#include "trainer_worker/shard/parameter_shard.h"
#include "trainer_worker/trained_weights/trained_weights.h"
#include "trainer_worker/weight_sync/weight_publisher.h"

namespace tandem {

struct SessionOptions {
  std::string model_dir;
  int64_t vocab_limit = 0;
  int64_t max_sequence_tokens = 0;     // positions of the rope table
  int64_t max_micro_batch_tokens = 0;  // actor.ppo_max_token_len_per_gpu
  // Limits of a mini-batch, of a complete step (scored by Score) and of the probe; samples = 0:
  // unknown.
  BatchLimits train_limits{.samples = 0};
  BatchLimits score_limits{.samples = 0};
  BatchLimits probe_limits{.samples = 0};
  bool allow_off_support = false;
  bool share_prompts = true;  // see PackingLimits::share_prompts
  Recompute recompute = Recompute::kAuto;
  Reshard reshard = Reshard::kAuto;
  bool prefetch = true;      // gather the next layer while one computes
  int64_t device_bytes = 0;  // this pair's share of the device's memory
  int64_t kept_bytes = 0;    // memory that this worker may hold while its rollout generates
  // No rollout shares the device. Weights may then be sent while gradients wait for their update.
  bool has_own_device = false;
  bool entropy = true;             // log the entropy even if the loss does not use it
  std::string offload_dir;         // the folder for the files of offloaded memory; must exist
  bool offload_master = false;     // actor.fsdp_config.param_offload; not with fp32 compute
  bool offload_moments = false;    // actor.fsdp_config.optimizer_offload
  bool offload_reference = false;  // ref.offload
  LoraOptions lora;                // rank 0: train all weights
  OptimizerOptions optimizer;
  PublishOptions publish;  // Create sets its ledger
};

// The policy whose log-probs are computed, and the samples that they are computed for.
enum class LogProbPolicy {
  kCurrent,    // the current weights, on a step's samples
  kReference,  // the frozen policy, on a step's samples
  kProbe,      // the current weights, on the probe samples of its rollouts
  kCompared,   // the current weights, on a step's samples, to compare with the rollout
};

// The device of a session and the ops that compute on it; created once per process.
struct SessionOps {
  Device* device = nullptr;
  ForwardOps* forward = nullptr;
  BackwardOps* backward = nullptr;  // null if the session does not train
  ShardOps* shard = nullptr;
};

// Not thread-safe: used by the engine thread.
class TrainingSession {
 public:
  // Reads the model's spec and allocates the memory; weights are 0 until TrainedWeights::Load.
  // `communicator` (owned by the caller, which may have to abort it), the ops and `ledger` outlive
  // the session. Only the session may use the communicator during its life. Errors as
  // MakeTrainedWeights.
  static absl::StatusOr<std::unique_ptr<TrainingSession>> Create(const SessionOptions& options,
                                                                 const SessionOps& ops,
                                                                 Communicator* communicator,
                                                                 Ledger* ledger);

  const Decoder& decoder() const { return decoder_; }
  const ModelSpec& spec() const { return decoder_.spec(); }
  const ShardPlan& plan() const { return *plan_; }
  // For this rank's collectives during the session's life.
  Communicator& communicator() { return *communicator_; }
  TrainedWeights& weights() { return *weights_; }
  // The shard that the optimizer steps: the model's weights, or adapters.
  ParameterShard& shard() { return weights_->trained(); }
  Optimizer& optimizer() { return optimizer_; }
  WeightPublisher& publisher() { return *publisher_; }

  // Collective. Must be called when the shard has new values.
  absl::Status WeightsChanged();
  // Calls TrainedWeights::FreezeReference, replacing an earlier reference.
  absl::Status FreezeReference();

  // Collective. Zeroes the gradients and runs the mini-batch; `differing` as in TrainMiniBatch.
  absl::StatusOr<MiniBatchReport> Train(const MiniBatchRequest& request,
                                        const std::vector<Sample>& samples,
                                        LogProbsBySample* differing = nullptr);
  // Collective. Steps the optimizer on the gradients of the last Train. FailedPrecondition: there
  // are none.
  absl::StatusOr<OptimizerReport> Step();
  // Collective. Returns the log-probs of the samples; `request` and `extras` as in ScoreSamples.
  // FailedPrecondition: no reference policy is kept. Other errors: as ScoreSamples.
  absl::StatusOr<LogProbsBySample> Score(const std::vector<Sample>& samples,
                                         LogProbPolicy policy = LogProbPolicy::kCurrent,
                                         const ScoreRequest& request = ScoreRequest(),
                                         ScoreExtras* extras = nullptr);

  // Releases memory that only training needs (gathered weights, gradients, activations) if this
  // worker holds more than `kept_bytes`, as its rollout then needs the memory. Otherwise keeps it:
  // touching fresh pages in every step is slow.
  absl::Status ReleaseForRollout();
  // Internal: this worker holds more than `kept_bytes`, and some of it is memory that only training
  // needs; the message names the tags. The rollout would run out of memory when it wakes. On a
  // device of its own, gradients that wait for their update do not count.
  absl::Status CheckReleased() const;

 private:
  TrainingSession(Decoder decoder, const SessionOptions& options)
      : options_(options), decoder_(std::move(decoder)), optimizer_(options.optimizer) {}
  PassOptions Pass(const BatchLimits& limits) const;
  GatherOptions Gathering() const;
  TrainerMemoryOptions MemoryOptions() const;
  // Bytes that the rollout cannot use: host memory on a CPU worker, device memory on a GPU worker.
  int64_t BytesInUse() const {
    return device_->is_host() ? ledger_->memory_bytes() : ledger_->Snapshot().device_bytes;
  }
  absl::StatusOr<LayerSource*> Layers(LogProbPolicy policy);
  // Allocates the memory of the layers and of the gradients, which are zeroed.
  absl::Status AllocateTrainingMemory();
  // Collective: all ranks learn whether one has no memory for a pass, so that none waits for it in
  // a collective.
  absl::Status AgreeOnMemory(const absl::Status& mine);

  const SessionOptions options_;
  Decoder decoder_;
  Device* device_ = nullptr;
  Ledger* ledger_ = nullptr;
  std::unique_ptr<ShardPlan> plan_;
  std::unique_ptr<TrainedWeights> weights_;
  std::unique_ptr<LayerBuffers> buffers_;
  std::unique_ptr<LayerSource> policy_layers_;
  std::unique_ptr<LayerSource> reference_layers_;  // null until the reference policy is scored
  std::unique_ptr<LayerLoop> loop_;
  std::unique_ptr<WeightPublisher> publisher_;
  Optimizer optimizer_;
  bool has_gradients_ = false;                         // of a mini-batch, not yet used by a step
  std::unique_ptr<OrderedCommunicator> communicator_;  // destroyed first: its thread fills buffers_
};

}  // namespace tandem
