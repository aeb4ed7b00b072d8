#include "trainer_worker/training_session.h"

#include <algorithm>

#include <absl/time/clock.h>

#include "common/base/log.h"
#include "common/base/status.h"
#include "common/comm/communicator.h"
#include "trainer_worker/shard/shard_array.h"
#include "trainer_worker/trained_weights/adapter_gradients.h"
#include "trainer_worker/trained_weights/adapter_lora.h"
#include "trainer_worker/weight_sync/weight_sources.h"

namespace tandem {
namespace {

// Empty: the rollout may read the shard itself.
std::string WhyNotDirect(const ShardPlan& plan, const WeightTransport& transport) {
  if (plan.world_size() > 1) {
    return fmt::format("as each of {} ranks has a part of the rows", plan.world_size());
  }
  if (plan.layout().dtype() == DType::kFloat32) {
    return "as float32 compute has no copy of the masters to share";
  }
  return transport.can_share() ? "" : "as the transport cannot share the shard's memory";
}

// A pass on a GPU ends when its gradients are there. A rank that went on to the optimizer with an
// error of its device would leave the others waiting there.
absl::Status AwaitGradients(Communicator& communicator, Device& device, MiniBatchReport& report) {
  if (device.is_host()) return absl::OkStatus();
  const absl::Time start = absl::Now();
  TANDEM_RETURN_IF_ERROR(Agree(communicator, device.Synchronize(), "the backward pass").status());
  report.backward_seconds += absl::ToDoubleSeconds(absl::Now() - start);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<TrainingSession>> TrainingSession::Create(
    const SessionOptions& options,
    const SessionOps& ops,
    Communicator* communicator,
    Ledger* ledger) {
  TANDEM_ASSIGN_OR_RETURN(const ModelSpec base, LoadModelSpec(options.model_dir));
  TANDEM_ASSIGN_OR_RETURN(const ModelSpec spec, WithAdapters(base, options.lora));
  TANDEM_ASSIGN_OR_RETURN(Decoder decoder,
                          Decoder::Create(spec, ops.forward, options.max_sequence_tokens));
  std::unique_ptr<TrainingSession> session(new TrainingSession(std::move(decoder), options));
  session->communicator_ = std::make_unique<OrderedCommunicator>(communicator);
  session->ledger_ = ledger;
  const WeightLayout* layout = &session->decoder_.layout();
  session->plan_ =
      std::make_unique<ShardPlan>(layout, communicator->rank(), communicator->world_size());
  session->device_ = ops.device;
  const ShardCompute compute{ops.device, ops.shard};
  TANDEM_RETURN_IF_ERROR(options.lora.rank > 0 ? session->TakeLora(base, compute)
                                               : session->TakeShard(compute));
  TANDEM_ASSIGN_OR_RETURN(
      session->weights_,
      WeightGather::Create(ops.device, session->plan_.get(), session->Current(),
                           session->communicator_.get(), ledger, session->Gathering()));
  session->loop_ = std::make_unique<LayerLoop>(
      ops.device, &session->decoder_, ops.forward, ops.backward, ledger,
      LayerLoopOptions{.vocab_limit = std::min(options.vocab_limit, spec.vocab_size),
                       .entropy = options.entropy});
  PublishOptions publish = options.publish;
  publish.ledger = ledger;
  publish.keep_bytes = KeptSlotBytes(options.kept_bytes);
  session->publisher_ = std::make_unique<WeightPublisher>(layout, publish);
  return session;
}

absl::Status TrainingSession::TakeShard(const ShardCompute& compute) {
  const std::string obstacle = WhyNotDirect(*plan_, *options_.publish.transport);
  LogInfo("weight sync: {}",
          obstacle.empty() ? "direct, the rollout reads the shard where it lies, without slots"
                           : "through slots, " + obstacle);
  TANDEM_ASSIGN_OR_RETURN(shard_,
                          ParameterShard::Create(plan_.get(),
                                                 {.offload_dir = options_.offload_dir,
                                                  .offload_master = options_.offload_master,
                                                  .offload_moments = options_.offload_moments,
                                                  .direct = obstacle.empty()},
                                                 compute, ledger_));
  TANDEM_ASSIGN_OR_RETURN(gradients_,
                          ShardedGradients::Create(shard_.get(), communicator_.get(), ledger_));
  return absl::OkStatus();
}

absl::Status TrainingSession::TakeLora(const ModelSpec& base, const ShardCompute& compute) {
  if (!device_->is_host() && options_.lora.dropout > 0) {
    return FailedPrecondition(
        "model.lora.dropout={}: dropout is built for CPUs only so far, and this trainer computes "
        "on "
        "{}: set it to 0, or trainer.device=cpu",
        options_.lora.dropout, device_->name());
  }
  const bool merge = options_.lora.merge;
  LogInfo("weight sync: through slots, {}",
          merge ? "as adapters are merged on the way"
                : "adapters alone where the rollout holds the base");
  const ShardPlan* plan = plan_.get();
  if (!merge) {
    const WeightLayout& layout = plan_->layout();
    base_layout_ = std::make_unique<WeightLayout>(WeightLayout::Build(base, layout.dtype()));
    base_plan_ =
        std::make_unique<ShardPlan>(base_layout_.get(), plan_->rank(), plan_->world_size());
    plan = base_plan_.get();
  }
  TANDEM_ASSIGN_OR_RETURN(LoraSpec lora, MakeLoraSpec(base, options_.lora));
  TANDEM_ASSIGN_OR_RETURN(const auto checkpoint, HfCheckpoint::Open(options_.model_dir, base));
  TANDEM_ASSIGN_OR_RETURN(
      lora_, LoraWeights::Create(
                 plan, std::move(lora), checkpoint->exact_dtype(),
                 {.offload_dir = options_.offload_dir, .offload_moments = options_.offload_moments},
                 compute, ledger_, merge ? LoraUse::kMerged : LoraUse::kBeside));
  return TakeAdapters(compute);
}

absl::Status TrainingSession::TakeAdapters(const ShardCompute& compute) {
  if (options_.lora.merge) {
    TANDEM_ASSIGN_OR_RETURN(gradients_,
                            AdapterGradients::Create(lora_.get(), communicator_.get(), ledger_));
    return absl::OkStatus();
  }
  TANDEM_ASSIGN_OR_RETURN(beside_,
                          UnmergedPolicy::Create(plan_.get(), lora_.get(), compute, ledger_));
  TANDEM_ASSIGN_OR_RETURN(gradients_, AdapterLoraGradients::Create(decoder_.spec(), lora_.get(),
                                                                   communicator_.get(), ledger_));
  return absl::OkStatus();
}

WeightRows& TrainingSession::policy() {
  if (beside_ != nullptr) return *beside_;
  return exported();
}

WeightRows& TrainingSession::exported() {
  if (lora_ != nullptr) return *lora_;
  return *shard_;
}

ShardSource TrainingSession::Current() const {
  if (beside_ != nullptr) return {.rows = beside_.get()};
  if (lora_ != nullptr) return {.rows = lora_.get()};
  return {.data = shard_->compute()};
}

absl::Status TrainingSession::WeightsChanged() {
  weights_->Refresh();
  if (lora_ != nullptr) TANDEM_RETURN_IF_ERROR(lora_->Gather(*communicator_));
  return beside_ == nullptr ? absl::OkStatus() : beside_->AdaptersChanged();
}

std::unique_ptr<WeightSource> TrainingSession::MakeSource() {
  DigestedPolicy* policy = beside_.get();
  if (policy == nullptr) policy = lora_.get();
  if (policy != nullptr) return std::make_unique<LoraTensorSource>(policy, communicator_.get());
  return std::make_unique<ShardTensorSource>(shard_.get(), communicator_.get());
}

GatherOptions TrainingSession::Gathering() const {
  return {.reshard = options_.reshard,
          .prefetch = options_.prefetch,
          .kept_bytes = options_.kept_bytes};
}

PassOptions TrainingSession::Pass(const BatchLimits& limits) const {
  PassOptions pass;
  pass.limits = {.max_tokens = options_.max_micro_batch_tokens,
                 .max_sequence_tokens = options_.max_sequence_tokens,
                 .vocab_limit = std::min(options_.vocab_limit, spec().vocab_size),
                 .allow_off_support = options_.allow_off_support,
                 .share_prompts = options_.share_prompts};
  pass.recompute = options_.recompute;
  pass.dropout = options_.lora.dropout;
  pass.activation_budget_bytes =
      ActivationBudget(TrainerBytes(spec(), MemoryOptions()), options_.device_bytes);
  if (limits.samples > 0) pass.largest = LargestMicroBatch(limits);
  return pass;
}

TrainerMemoryOptions TrainingSession::MemoryOptions() const {
  return {.pairs = communicator_->world_size(),
          .element_bytes = static_cast<int64_t>(DTypeBytes(plan_->layout().dtype())),
          .reference = reference_ != nullptr,
          .offload_master = options_.offload_master,
          .offload_moments = options_.offload_moments,
          .offload_reference = options_.offload_reference,
          .adapters = lora_ == nullptr ? 0 : lora_->adapters().plan().total_elements(),
          .adapter_shard = lora_ == nullptr ? 0 : lora_->adapters().plan().elements(0),
          .base_element_bytes = lora_ == nullptr ? 0 : BaseElementBytes(),
          .gpu = !device_->is_host(),
          .gather = Gathering()};
}

absl::Status TrainingSession::GatherFrom(const ShardSource& source) {
  weights_->Use(source);
  return weights_->Map();
}

absl::Status TrainingSession::ReleaseForRollout() {
  if (HeldBytes() <= options_.kept_bytes) return absl::OkStatus();
  loop_->Release();
  publisher_->ReleaseSlots();
  TANDEM_RETURN_IF_ERROR(weights_->Release());
  TANDEM_RETURN_IF_ERROR(gradients_->Release());
  return has_gradients_ ? absl::OkStatus() : LogReleaseFailure(shard().ReleaseGradients());
}

absl::Status TrainingSession::CheckReleased() const {
  const int64_t held = HeldBytes();
  if (held <= options_.kept_bytes) return absl::OkStatus();
  std::string kept;
  for (const LedgerEntry& entry : ledger_->Snapshot().entries) {
    const bool training =
        entry.tag == "gather" || entry.tag == "gradients" || entry.tag == "activations";
    if (!training || entry.current_bytes == 0) continue;
    kept +=
        fmt::format("{}{} bytes of {}", kept.empty() ? "" : ", ", entry.current_bytes, entry.tag);
  }
  if (kept.empty()) return absl::OkStatus();
  return Internal(
      "the trainer still holds {} after its sync: {} bytes in all, where {} may stay while the "
      "rollout has its KV cache",
      kept, held, options_.kept_bytes);
}

absl::Status TrainingSession::TakeTrainingMemory() {
  TANDEM_RETURN_IF_ERROR(GatherFrom(Current()));
  TANDEM_RETURN_IF_ERROR(shard().ZeroGradients());
  return gradients_->Begin();
}

absl::Status TrainingSession::AgreeOnMemory(const absl::Status& mine) {
  return Agree(*communicator_, mine, "taking memory for a pass").status();
}

absl::StatusOr<MiniBatchReport> TrainingSession::Train(const MiniBatchRequest& request,
                                                       const std::vector<Sample>& samples,
                                                       LogProbsBySample* differing) {
  has_gradients_ = false;
  TANDEM_RETURN_IF_ERROR(AgreeOnMemory(TakeTrainingMemory()));
  const PassParts parts{loop_.get(), weights_.get(), gradients_.get(), communicator_.get()};
  TANDEM_ASSIGN_OR_RETURN(MiniBatchReport report, TrainMiniBatch(parts, Pass(options_.train_limits),
                                                                 request, samples, differing));
  TANDEM_RETURN_IF_ERROR(AwaitGradients(*communicator_, *device_, report));
  has_gradients_ = true;
  return report;
}

absl::StatusOr<OptimizerReport> TrainingSession::Step() {
  if (!has_gradients_) {
    return FailedPrecondition("there are no gradients to step on; ForwardBackward comes first");
  }
  TANDEM_ASSIGN_OR_RETURN(const OptimizerReport report, optimizer_.Step(shard(), *communicator_));
  has_gradients_ = false;
  TANDEM_RETURN_IF_ERROR(WeightsChanged());
  return report;
}

absl::StatusOr<LogProbsBySample> TrainingSession::ScoreFrom(const ShardSource& source,
                                                            const BatchLimits& limits,
                                                            const std::vector<Sample>& samples,
                                                            LogProbsBySample* sum_pi_squared) {
  TANDEM_RETURN_IF_ERROR(AgreeOnMemory(GatherFrom(source)));
  const PassParts parts{loop_.get(), weights_.get(), nullptr, communicator_.get()};
  return ScoreSamples(parts, Pass(limits), samples, sum_pi_squared);
}

absl::StatusOr<LogProbsBySample> TrainingSession::Score(const std::vector<Sample>& samples,
                                                        LogProbsBySample* sum_pi_squared) {
  return ScoreFrom(Current(), options_.score_limits, samples, sum_pi_squared);
}

absl::StatusOr<LogProbsBySample> TrainingSession::ScoreProbe(const std::vector<Sample>& samples) {
  return ScoreFrom(Current(), options_.probe_limits, samples);
}

absl::Status TrainingSession::FreezeReference() {
  if (lora_ != nullptr) return absl::OkStatus();
  weights_->Use(Current());  // the copy made before goes
  const std::string directory = options_.offload_reference ? options_.offload_dir : "";
  TANDEM_ASSIGN_OR_RETURN(reference_, ReferenceShard::Copy(*shard_, directory, ledger_));
  return absl::OkStatus();
}

absl::StatusOr<LogProbsBySample> TrainingSession::ScoreReference(
    const std::vector<Sample>& samples) {
  if (lora_ != nullptr) {
    WeightRows* const base = beside_ != nullptr ? &beside_->reference() : &lora_->base();
    return ScoreFrom({.rows = base}, options_.score_limits, samples);
  }
  if (reference_ == nullptr) {
    return FailedPrecondition(
        "no reference policy is kept; set actor.use_kl_loss or algorithm.use_kl_in_reward");
  }
  return ScoreFrom(reference_->source(), options_.score_limits, samples);
}

}  // namespace tandem
