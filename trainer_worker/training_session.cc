#include "trainer_worker/training_session.h"

#include <algorithm>
#include <cstring>

#include "common/base/status_macros.h"
#include "common/model_spec/memory_formulas.h"

namespace tandem {
absl::StatusOr<std::unique_ptr<TrainingSession>> TrainingSession::Create(
    const SessionOptions& options,
    const SessionOps& ops,
    Communicator* communicator,
    Ledger* ledger) {
  TANDEM_ASSIGN_OR_RETURN(const ModelSpec spec, LoadModelSpec(options.model_dir));
  TANDEM_ASSIGN_OR_RETURN(Decoder decoder,
                          Decoder::Create(spec, ops.forward, options.max_sequence_tokens));
  std::unique_ptr<TrainingSession> session(
      new TrainingSession(std::move(decoder), options, ops.pool));
  session->communicator_ = communicator;
  session->ledger_ = ledger;
  const WeightLayout* layout = &session->decoder_.layout();
  session->plan_ =
      std::make_unique<ShardPlan>(layout, communicator->rank(), communicator->world_size());
  const ShardPlan* plan = session->plan_.get();
  TANDEM_ASSIGN_OR_RETURN(session->shard_, ParameterShard::Create(plan, ledger));
  TANDEM_ASSIGN_OR_RETURN(session->weights_,
                          WeightGather::Create(plan, session->shard_->compute(), communicator,
                                               ledger, KeptGatherBytes(options.kept_bytes)));
  TANDEM_ASSIGN_OR_RETURN(session->gradients_,
                          GradientScatter::Create(session->shard_.get(), communicator, ledger));
  session->loop_ = std::make_unique<LayerLoop>(
      &session->decoder_, ops.forward, ops.backward, ledger,
      LayerLoopOptions{.vocab_limit = std::min(options.vocab_limit, spec.vocab_size),
                       .entropy = options.entropy});
  PublishOptions publish = options.publish;
  publish.ledger = ledger;
  session->publisher_ = std::make_unique<WeightPublisher>(layout, publish);
  return session;
}

PassOptions TrainingSession::Pass() const {
  PassOptions pass;
  pass.limits = {.max_tokens = options_.max_micro_batch_tokens,
                 .max_sequence_tokens = options_.max_sequence_tokens,
                 .vocab_limit = std::min(options_.vocab_limit, spec().vocab_size),
                 .allow_off_support = options_.allow_off_support,
                 .share_prompts = options_.share_prompts};
  pass.recompute = options_.recompute;
  // Half of what the device has left beside this worker's own bytes; the other half is the
  // rollout's weights and everybody's scratch.
  // Activations that an earlier pass left do not count: they are used again.
  pass.activation_budget_bytes =
      std::max<int64_t>(0, (options_.device_bytes - HeldBytes(/*with_activations=*/false)) / 2);
  return pass;
}

int64_t TrainingSession::HeldBytes(bool with_activations) const {
  int64_t held = 0;
  for (const LedgerEntry& entry : ledger_->Snapshot().entries) {
    if (with_activations || entry.tag != "activations") held += entry.current_bytes;
  }
  return held;
}

absl::Status TrainingSession::ReleaseIfTight() {
  if (HeldBytes(/*with_activations=*/true) <= options_.kept_bytes) return absl::OkStatus();
  loop_->Release();
  TANDEM_RETURN_IF_ERROR(weights_->Release());
  TANDEM_RETURN_IF_ERROR(gradients_->Release());
  return has_gradients_ ? absl::OkStatus() : shard_->ReleaseGradients();
}

absl::StatusOr<MiniBatchReport> TrainingSession::Train(const MiniBatchRequest& request,
                                                       const std::vector<Sample>& samples) {
  TANDEM_RETURN_IF_ERROR(weights_->Map());
  has_gradients_ = false;
  TANDEM_RETURN_IF_ERROR(shard_->ZeroGradients());
  const PassParts parts{loop_.get(), weights_.get(), gradients_.get(), communicator_};
  auto report = TrainMiniBatch(parts, Pass(), request, samples);
  has_gradients_ = report.ok();
  return report;
}

absl::StatusOr<OptimizerReport> TrainingSession::Step() {
  if (!has_gradients_) {
    return FailedPrecondition("there are no gradients to step on; ForwardBackward comes first");
  }
  TANDEM_ASSIGN_OR_RETURN(const OptimizerReport report, optimizer_.Step(*shard_, *communicator_));
  has_gradients_ = false;
  WeightsChanged();
  return report;
}

absl::StatusOr<LogProbsBySample> TrainingSession::Score(const std::vector<Sample>& samples) {
  TANDEM_RETURN_IF_ERROR(weights_->Map());
  const PassParts parts{loop_.get(), weights_.get(), nullptr, communicator_};
  return ScoreSamples(parts, Pass(), samples);
}

absl::Status TrainingSession::FreezeReference() {
  const auto element = static_cast<int64_t>(DTypeBytes(plan_->layout().dtype()));
  const int64_t bytes = std::max<int64_t>(shard_->elements(), 1) * element;
  TANDEM_ASSIGN_OR_RETURN(reference_, MemoryRegion::Reserve("reference", bytes, ledger_));
  TANDEM_RETURN_IF_ERROR(reference_->Map());
  std::memcpy(reference_->data(), shard_->compute(),
              static_cast<size_t>(shard_->elements() * element));
  return absl::OkStatus();
}

absl::StatusOr<LogProbsBySample> TrainingSession::ScoreReference(
    const std::vector<Sample>& samples) {
  if (reference_ == nullptr) {
    return FailedPrecondition(
        "no reference policy is kept; set actor.use_kl_loss or algorithm.use_kl_in_reward");
  }
  // One set of gathered weights at a time.
  TANDEM_RETURN_IF_ERROR(weights_->Release());
  TANDEM_ASSIGN_OR_RETURN(
      auto weights, WeightGather::Create(plan_.get(), reference_->data(), communicator_, ledger_,
                                         KeptGatherBytes(options_.kept_bytes)));
  TANDEM_RETURN_IF_ERROR(weights->Map());
  const PassParts parts{loop_.get(), weights.get(), nullptr, communicator_};
  return ScoreSamples(parts, Pass(), samples);
}

}  // namespace tandem
