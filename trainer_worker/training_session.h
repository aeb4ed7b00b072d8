// Everything a trainer rank holds between Reset and Reset: the group of ranks, the shard, and what
// computes on them.
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
  // Of a mini-batch, of a whole step (what Score takes) and of the probe; no samples: not known.
  BatchLimits train_limits{.samples = 0};
  BatchLimits score_limits{.samples = 0};
  BatchLimits probe_limits{.samples = 0};
  bool allow_off_support = false;
  bool share_prompts = true;  // see PackingLimits
  Recompute recompute = Recompute::kAuto;
  Reshard reshard = Reshard::kAuto;
  bool prefetch = true;            // gather the next layer while one computes
  int64_t device_bytes = 0;        // this pair's share of the device's memory
  int64_t kept_bytes = 0;          // this worker may hold while its rollout generates
  bool entropy = true;             // log it even where the loss does not need it
  std::string offload_dir;         // where offloaded memory has its files; exists
  bool offload_master = false;     // actor.fsdp_config.param_offload; not with fp32 compute
  bool offload_moments = false;    // actor.fsdp_config.optimizer_offload
  bool offload_reference = false;  // ref.offload
  LoraOptions lora;                // rank 0: all weights are trained
  OptimizerOptions optimizer;
  PublishOptions publish;  // its ledger is filled in
};

// Which policy's log-probs are computed, and of which samples.
enum class LogProbPolicy {
  kCurrent,    // the weights as they are, on a step's samples
  kReference,  // the frozen policy, on a step's samples
  kProbe,      // the weights as they are, on the probe samples of the paired rollout
};

// The device of a session and the ops that compute on it, made together once in the process.
struct SessionOps {
  Device* device = nullptr;
  ForwardOps* forward = nullptr;
  BackwardOps* backward = nullptr;  // null where nothing is trained
  ShardOps* shard = nullptr;
};

// Not thread-safe: the engine thread's.
class TrainingSession {
 public:
  // Reads the model's spec and allocates the memory; weights are 0 until TrainedWeights::Load.
  // `communicator` (owned by the caller, as it may have to be aborted), ops and `ledger` outlive
  // the session, which alone uses the communicator meanwhile. Errors as MakeTrainedWeights.
  static absl::StatusOr<std::unique_ptr<TrainingSession>> Create(const SessionOptions& options,
                                                                 const SessionOps& ops,
                                                                 Communicator* communicator,
                                                                 Ledger* ledger);

  const Decoder& decoder() const { return decoder_; }
  const ModelSpec& spec() const { return decoder_.spec(); }
  const ShardPlan& plan() const { return *plan_; }
  // Collectives of this rank while the session lives.
  Communicator& communicator() { return *communicator_; }
  TrainedWeights& weights() { return *weights_; }
  // Stepped by the optimizer: the model's weights, or adapters.
  ParameterShard& shard() { return weights_->trained(); }
  Optimizer& optimizer() { return optimizer_; }
  WeightPublisher& publisher() { return *publisher_; }

  // Collective: the shard got new values.
  absl::Status WeightsChanged();
  // TrainedWeights::FreezeReference, in place of a reference that was kept earlier.
  absl::Status FreezeReference();

  // Collective. Starts a new sum of gradients, runs the mini-batch; `differing` as TrainMiniBatch.
  absl::StatusOr<MiniBatchReport> Train(const MiniBatchRequest& request,
                                        const std::vector<Sample>& samples,
                                        LogProbsBySample* differing = nullptr);
  // Collective. Steps on the gradients of the last Train. FailedPrecondition: there are none.
  absl::StatusOr<OptimizerReport> Step();
  // Collective. Log-probs of the samples and, unless null, their sums of squared probabilities.
  // FailedPrecondition: no reference policy is kept.
  absl::StatusOr<LogProbsBySample> Score(const std::vector<Sample>& samples,
                                         LogProbPolicy policy = LogProbPolicy::kCurrent,
                                         LogProbsBySample* sum_pi_squared = nullptr);

  // Releases what only training needs (gathered weights, gradients, activations) if the rollout
  // needs the memory, that is, if this worker holds more than `kept_bytes`. Otherwise it is kept:
  // the first touch of pages is too slow to do it again in every step.
  absl::Status ReleaseForRollout();
  // Internal: this worker holds more than `kept_bytes`, and some of it is memory that only training
  // needs; the message names the tags. The rollout would run out of memory as it wakes.
  absl::Status CheckReleased() const;

 private:
  TrainingSession(Decoder decoder, const SessionOptions& options)
      : options_(options), decoder_(std::move(decoder)), optimizer_(options.optimizer) {}
  PassOptions Pass(const BatchLimits& limits) const;
  GatherOptions Gathering() const;
  TrainerMemoryOptions MemoryOptions() const;
  // Bytes that the rollout cannot have: of the host's memory where that is the device's.
  int64_t BytesInUse() const {
    return device_->is_host() ? ledger_->memory_bytes() : ledger_->Snapshot().device_bytes;
  }
  absl::StatusOr<LayerSource*> Layers(LogProbPolicy policy);
  // Allocates the memory of the layers and that of gradients, all zero.
  absl::Status AllocateTrainingMemory();
  // Collective: a rank without memory for a pass must not leave the others in its collectives.
  absl::Status AgreeOnMemory(const absl::Status& mine);

  const SessionOptions options_;
  Decoder decoder_;
  Device* device_ = nullptr;
  Ledger* ledger_ = nullptr;
  std::unique_ptr<ShardPlan> plan_;
  std::unique_ptr<TrainedWeights> weights_;
  std::unique_ptr<LayerBuffers> buffers_;
  std::unique_ptr<LayerSource> policy_layers_;
  std::unique_ptr<LayerSource> reference_layers_;  // null until the reference is scored
  std::unique_ptr<LayerLoop> loop_;
  std::unique_ptr<WeightPublisher> publisher_;
  Optimizer optimizer_;
  bool has_gradients_ = false;  // of a mini-batch that was not stepped on yet
  std::unique_ptr<OrderedCommunicator> communicator_;  // ends first: its thread fills buffers_
};

}  // namespace tandem
