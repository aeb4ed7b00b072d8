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
#include "trainer_worker/layers/sharded_gradients.h"
#include "trainer_worker/shard/optimizer.h"
#include "trainer_worker/shard/parameter_shard.h"
#include "trainer_worker/trained_weights/adapter_lora.h"
#include "trainer_worker/trained_weights/merged_lora.h"
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

// Where a session lives and what computes in it; made once in the process, to fit each other.
struct SessionOps {
  Device* device = nullptr;
  ForwardOps* forward = nullptr;
  BackwardOps* backward = nullptr;  // null where nothing is trained
  ShardOps* shard = nullptr;
};

// Not thread-safe: the engine thread's.
class TrainingSession {
 public:
  // Reads the model's spec and takes the memory; masters are 0 until LoadModel or LoadState. With
  // LoRA they are the adapters', and the base is 0 until LoadBase; InvalidArgument names targets
  // that the model does not have.
  // `communicator` (owned by the caller, as it may have to be aborted), ops and `ledger` outlive
  // the session, which alone uses the communicator meanwhile.
  static absl::StatusOr<std::unique_ptr<TrainingSession>> Create(const SessionOptions& options,
                                                                 const SessionOps& ops,
                                                                 Communicator* communicator,
                                                                 Ledger* ledger);

  const ModelSpec& spec() const { return decoder_.spec(); }
  const Decoder& decoder() const { return decoder_; }
  const ShardPlan& plan() const { return *plan_; }
  // Collectives of this rank while the session lives.
  Communicator& communicator() { return *communicator_; }
  // What is trained: the model's weights, or adapters.
  ParameterShard& shard() { return lora_ == nullptr ? *shard_ : lora_->adapters(); }
  // What the layers compute with, rounded.
  WeightRows& policy();
  // The model as it is exported: with adapters merged.
  WeightRows& exported();
  LoraWeights* lora() { return lora_.get(); }  // null: all weights are trained
  // Whether adapters are computed beside the base, and cross without it.
  bool adapters_beside() const { return beside_ != nullptr; }
  Optimizer& optimizer() { return optimizer_; }
  WeightPublisher& publisher() { return *publisher_; }
  Ledger* ledger() { return ledger_; }

  // The shard got new values. Collective with LoRA, where the adapters are gathered.
  absl::Status WeightsChanged();
  // What a sync sends. The session outlives it.
  std::unique_ptr<WeightSource> MakeSource();

  // Collective. Starts a new sum of gradients, runs the mini-batch; `differing` as TrainMiniBatch.
  absl::StatusOr<MiniBatchReport> Train(const MiniBatchRequest& request,
                                        const std::vector<Sample>& samples,
                                        LogProbsBySample* differing = nullptr);
  // Collective. Steps on the gradients of the last Train. FailedPrecondition: there are none.
  absl::StatusOr<OptimizerReport> Step();
  // Collective. Log-probs under the current weights: of the step's samples (and their sums of
  // squared probabilities, unless null), of the probe's.
  absl::StatusOr<LogProbsBySample> Score(const std::vector<Sample>& samples,
                                         LogProbsBySample* sum_pi_squared = nullptr);
  absl::StatusOr<LogProbsBySample> ScoreProbe(const std::vector<Sample>& samples);

  // Keeps the weights as they are now as the reference policy (tag reference), in a file if
  // offload_reference; with LoRA the base is the reference, and nothing is kept.
  absl::Status FreezeReference();
  // Collective. Log-probs under the reference policy. FailedPrecondition: there is none.
  absl::StatusOr<LogProbsBySample> ScoreReference(const std::vector<Sample>& samples);

  // Gives back what only training needs (gathered weights, gradients, activations) if the rollout
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
  absl::StatusOr<LogProbsBySample> ScoreFrom(const ShardSource& source,
                                             const BatchLimits& limits,
                                             const std::vector<Sample>& samples,
                                             LogProbsBySample* sum_pi_squared = nullptr);
  GatherOptions Gathering() const;
  TrainerMemoryOptions MemoryOptions() const;
  int64_t BaseElementBytes() const {
    return static_cast<int64_t>(DTypeBytes(lora_->base().dtype()));
  }
  // What the rollout may lack: of the host's memory where that is the device's.
  int64_t HeldBytes() const {
    return device_->is_host() ? ledger_->memory_bytes() : ledger_->Snapshot().device_bytes;
  }
  // Takes the memory of gathered weights, for this policy from now on.
  absl::Status GatherFrom(const ShardSource& source);
  // The same and that of gradients, all zero.
  absl::Status TakeTrainingMemory();
  // Collective: a rank that got no memory for a pass must not leave the others in its collectives.
  absl::Status AgreeOnMemory(const absl::Status& mine);
  ShardSource Current() const;
  absl::Status TakeLora(const ModelSpec& base, const ShardCompute& compute);
  // What LoRA takes beyond the weights: gradients and, beside the base, the policy.
  absl::Status TakeAdapters(const ShardCompute& compute);
  absl::Status TakeShard(const ShardCompute& compute);

  const SessionOptions options_;
  Decoder decoder_;
  Device* device_ = nullptr;
  Ledger* ledger_ = nullptr;
  std::unique_ptr<ShardPlan> plan_;
  std::unique_ptr<ParameterShard> shard_;  // null with LoRA
  // Of the model without adapters, where those are computed beside it; null otherwise.
  std::unique_ptr<WeightLayout> base_layout_;
  std::unique_ptr<ShardPlan> base_plan_;
  std::unique_ptr<LoraWeights> lora_;       // null without
  std::unique_ptr<UnmergedPolicy> beside_;  // null where adapters are merged
  std::unique_ptr<WeightGather> weights_;
  std::unique_ptr<GradientAccumulator> gradients_;
  std::unique_ptr<LayerLoop> loop_;
  std::unique_ptr<WeightPublisher> publisher_;
  std::unique_ptr<ReferenceShard> reference_;
  Optimizer optimizer_;
  bool has_gradients_ = false;  // of a mini-batch that was not stepped on yet
  std::unique_ptr<OrderedCommunicator> communicator_;  // ends first: its thread fills weights_
};

}  // namespace tandem
