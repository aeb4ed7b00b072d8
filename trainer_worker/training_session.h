// Everything a trainer rank holds between Reset and Reset: the group of ranks, the shard, and what
// computes on them.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include <absl/status/statusor.h>

#include "common/comm/communicator.h"
#include "common/device/ledger.h"
#include "common/model/decoder.h"
#include "common/weights/weight_publisher.h"
#include "trainer_worker/mini_batch.h"
#include "trainer_worker/optimizer.h"
#include "trainer_worker/shard_tensor_source.h"

namespace tandem {

struct SessionOptions {
  std::string model_dir;
  int64_t vocab_limit = 0;
  int64_t max_sequence_tokens = 0;     // positions of the rope table
  int64_t max_micro_batch_tokens = 0;  // actor.ppo_max_token_len_per_gpu
  bool allow_off_support = false;
  bool share_prompts = true;  // see PackingLimits
  Recompute recompute = Recompute::kAuto;
  int64_t device_bytes = 0;  // this pair's share of the device's memory
  int64_t kept_bytes = 0;    // this worker may hold while its rollout generates
  bool entropy = true;       // log it even where the loss does not need it
  OptimizerOptions optimizer;
  PublishOptions publish;  // its ledger is filled in
};

// What computes in the process; made once.
struct SessionOps {
  ForwardOps* forward = nullptr;
  BackwardOps* backward = nullptr;
  std::shared_ptr<ThreadPool> pool;  // that the ops use: the optimizer shares it
};

// Not thread-safe: the engine thread's.
class TrainingSession {
 public:
  // Reads the model's spec and takes the memory; masters are 0 until LoadModel or LoadState.
  // `communicator` (owned by the caller, as it may have to be aborted), ops and `ledger` outlive
  // the session.
  static absl::StatusOr<std::unique_ptr<TrainingSession>> Create(const SessionOptions& options,
                                                                 const SessionOps& ops,
                                                                 Communicator* communicator,
                                                                 Ledger* ledger);

  const ModelSpec& spec() const { return decoder_.spec(); }
  const Decoder& decoder() const { return decoder_; }
  const ShardPlan& plan() const { return *plan_; }
  Communicator& communicator() { return *communicator_; }
  ParameterShard& shard() { return *shard_; }
  Optimizer& optimizer() { return optimizer_; }
  WeightPublisher& publisher() { return *publisher_; }
  Ledger* ledger() { return ledger_; }

  // The shard got new values.
  void WeightsChanged() { weights_->Refresh(); }

  // Collective. Starts a new sum of gradients, runs the mini-batch.
  absl::StatusOr<MiniBatchReport> Train(const MiniBatchRequest& request,
                                        const std::vector<Sample>& samples);
  // Collective. Steps on the gradients of the last Train. FailedPrecondition: there are none.
  absl::StatusOr<OptimizerReport> Step();
  // Collective. Log-probs under the current weights.
  absl::StatusOr<LogProbsBySample> Score(const std::vector<Sample>& samples);

  // Keeps the weights as they are now as the reference policy (tag reference).
  absl::Status FreezeReference();
  // Collective. Log-probs under the reference policy. FailedPrecondition: there is none.
  absl::StatusOr<LogProbsBySample> ScoreReference(const std::vector<Sample>& samples);

  // Gives back what only training needs (gathered weights, gradients, activations) if the rollout
  // needs the memory, that is, if this worker holds more than `kept_bytes`. Otherwise it is kept:
  // the first touch of pages is too slow to do it again in every step.
  absl::Status ReleaseIfTight();

 private:
  TrainingSession(Decoder decoder, const SessionOptions& options, std::shared_ptr<ThreadPool> pool)
      : options_(options),
        decoder_(std::move(decoder)),
        optimizer_(options.optimizer, std::move(pool)) {}
  PassOptions Pass() const;
  int64_t HeldBytes(bool with_activations) const;

  const SessionOptions options_;
  Decoder decoder_;
  Communicator* communicator_ = nullptr;
  Ledger* ledger_ = nullptr;
  std::unique_ptr<ShardPlan> plan_;
  std::unique_ptr<ParameterShard> shard_;
  std::unique_ptr<WeightGather> weights_;
  std::unique_ptr<GradientScatter> gradients_;
  std::unique_ptr<LayerLoop> loop_;
  std::unique_ptr<WeightPublisher> publisher_;
  std::unique_ptr<MemoryRegion> reference_;
  Optimizer optimizer_;
  bool has_gradients_ = false;  // of a mini-batch that was not stepped on yet
};

}  // namespace tandem
