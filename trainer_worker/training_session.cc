#include "trainer_worker/training_session.h"

#include <algorithm>

#include "common/base/clock.h"
#include "common/base/status.h"
#include "common/comm/communicator.h"
#include "common/lora/lora_spec.h"
#include "trainer_worker/shard/shard_array.h"

namespace tandem {
namespace {

// On a GPU, waits until the pass has computed its gradients. Without this, a rank with a device
// error would fail in the optimizer, where the others wait for it.
absl::Status AwaitGradients(Communicator& communicator, Device& device, MiniBatchReport& report) {
  if (device.is_host()) return absl::OkStatus();
  const Instant start = RealClock().Now();
  TANDEM_RETURN_IF_ERROR(Agree(communicator, device.Synchronize(), "the backward pass").status());
  report.backward_seconds += absl::ToDoubleSeconds(RealClock().Now() - start);
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
  TANDEM_ASSIGN_OR_RETURN(session->weights_,
                          MakeTrainedWeights({.model_dir = options.model_dir,
                                              .offload_dir = options.offload_dir,
                                              .offload_master = options.offload_master,
                                              .offload_moments = options.offload_moments,
                                              .offload_reference = options.offload_reference,
                                              .lora = options.lora,
                                              .transport = options.publish.transport},
                                             base,
                                             {.spec = &session->decoder_.spec(),
                                              .plan = session->plan_.get(),
                                              .compute = {ops.device, ops.shard},
                                              .communicator = session->communicator_.get(),
                                              .ledger = ledger}));
  TANDEM_ASSIGN_OR_RETURN(session->buffers_, LayerBuffers::Create(ops.device, session->plan_.get(),
                                                                  ledger, session->Gathering()));
  session->policy_layers_ = MakeLayerSource(&session->weights_->policy(), session->buffers_.get(),
                                            session->communicator_.get());
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

absl::Status TrainingSession::WeightsChanged() {
  policy_layers_->Invalidate();
  return weights_->OnWeightsChanged();
}

absl::Status TrainingSession::FreezeReference() {
  reference_layers_.reset();
  return weights_->FreezeReference();
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
  TrainerMemoryOptions options{
      .pairs = communicator_->world_size(),
      .element_bytes = static_cast<int64_t>(DTypeBytes(plan_->layout().dtype())),
      .offload_master = options_.offload_master,
      .offload_moments = options_.offload_moments,
      .offload_reference = options_.offload_reference,
      .adapters = 0,
      .adapter_shard = 0,
      .base_element_bytes = 0,
      .gpu = !device_->is_host(),
      .gather = Gathering()};
  weights_->DescribeMemory(options);
  return options;
}

absl::StatusOr<LayerSource*> TrainingSession::Layers(LogProbPolicy policy) {
  if (policy != LogProbPolicy::kReference) return policy_layers_.get();
  TANDEM_ASSIGN_OR_RETURN(WeightRows* const reference, weights_->reference());
  if (reference_layers_ == nullptr) {
    reference_layers_ = MakeLayerSource(reference, buffers_.get(), communicator_.get());
  }
  return reference_layers_.get();
}

absl::Status TrainingSession::ReleaseForRollout() {
  if (BytesInUse() <= options_.kept_bytes) return absl::OkStatus();
  loop_->Release();
  publisher_->ReleaseSlots();
  TANDEM_RETURN_IF_ERROR(buffers_->Release());
  TANDEM_RETURN_IF_ERROR(weights_->gradients().Release());
  return has_gradients_ ? absl::OkStatus() : LogReleaseFailure(shard().ReleaseGradients());
}

absl::Status TrainingSession::CheckReleased() const {
  const int64_t held = BytesInUse();
  if (held <= options_.kept_bytes) return absl::OkStatus();
  std::string kept;
  for (const LedgerEntry& entry : ledger_->Snapshot().entries) {
    // One step off, a rollout may be sent its weights again before the update.
    const bool may_wait = options_.has_own_device && has_gradients_;
    const bool training = entry.tag == "gather" || entry.tag == "activations" ||
                          (entry.tag == "gradients" && !may_wait);
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

absl::Status TrainingSession::AllocateTrainingMemory() {
  TANDEM_RETURN_IF_ERROR(policy_layers_->Map());
  TANDEM_RETURN_IF_ERROR(shard().ZeroGradients());
  return weights_->gradients().Begin();
}

absl::Status TrainingSession::AgreeOnMemory(const absl::Status& mine) {
  return Agree(*communicator_, mine, "allocating memory for a pass").status();
}

absl::StatusOr<MiniBatchReport> TrainingSession::Train(const MiniBatchRequest& request,
                                                       const std::vector<Sample>& samples,
                                                       LogProbsBySample* differing) {
  has_gradients_ = false;
  TANDEM_RETURN_IF_ERROR(AgreeOnMemory(AllocateTrainingMemory()));
  const PassParts parts{loop_.get(), policy_layers_.get(), &weights_->gradients(),
                        communicator_.get()};
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

absl::StatusOr<LogProbsBySample> TrainingSession::Score(const std::vector<Sample>& samples,
                                                        LogProbPolicy policy,
                                                        const ScoreRequest& request,
                                                        ScoreExtras* extras) {
  TANDEM_ASSIGN_OR_RETURN(LayerSource* const layers, Layers(policy));
  TANDEM_RETURN_IF_ERROR(AgreeOnMemory(layers->Map()));
  const PassParts parts{loop_.get(), layers, nullptr, communicator_.get()};
  const bool probe = policy == LogProbPolicy::kProbe;
  return ScoreSamples(parts, Pass(probe ? options_.probe_limits : options_.score_limits), samples,
                      request, extras);
}

}  // namespace tandem
