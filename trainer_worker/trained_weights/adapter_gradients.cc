#include "trainer_worker/trained_weights/adapter_gradients.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "common/lora/lora_gradients.h"
#include "trainer_worker/shard/shard_array.h"

namespace tandem {

absl::StatusOr<std::unique_ptr<AdapterGradientSums>> AdapterGradientSums::Create(
    LoraWeights* weights, OrderedCommunicator* communicator, Ledger* ledger) {
  std::unique_ptr<AdapterGradientSums> sums(new AdapterGradientSums(weights, communicator));
  const ShardPlan& plan = weights->adapters().plan();
  if (plan.world_size() == 1) return sums;
  TANDEM_ASSIGN_OR_RETURN(
      sums->sums_,
      weights->device()->Reserve("gradients", plan.total_elements() * kFloat32Bytes, ledger));
  return sums;
}

absl::Status AdapterGradientSums::Begin() {
  if (sums_ == nullptr) return absl::OkStatus();
  TANDEM_RETURN_IF_ERROR(sums_->Map());
  weights_->device()->Zero(sums_->data(),
                           weights_->adapters().plan().total_elements() * kFloat32Bytes);
  return absl::OkStatus();
}

float* AdapterGradientSums::Of(size_t target, LoraMatrix matrix) const {
  const ShardPlan& plan = weights_->adapters().plan();
  const TensorPlace& place =
      plan.layout().places()[2 * target + (matrix == LoraMatrix::kB ? 1 : 0)];
  float* const all =
      sums_ == nullptr ? weights_->adapters().gradients() : reinterpret_cast<float*>(sums_->data());
  return all + place.gradient_offset;
}

absl::Status AdapterGradientSums::Finish() {
  if (sums_ == nullptr) return absl::OkStatus();
  const ShardPlan& plan = weights_->adapters().plan();
  std::vector<ScatteredSum> sums;
  for (size_t tensor = 0; tensor < plan.tensors().size(); ++tensor) {
    sums.push_back(
        {reinterpret_cast<const float*>(sums_->data()) + plan.tensors()[tensor]->gradient_offset,
         plan.CountsPerRank(tensor), weights_->adapters().gradients() + plan.mine(tensor).offset});
  }
  return communicator_->ReduceScatterSums(sums, Accumulate::kAdd);
}

absl::Status AdapterGradientSums::Release() {
  return sums_ == nullptr ? absl::OkStatus() : LogReleaseFailure(sums_->Release());
}

AdapterGradients::AdapterGradients(LoraWeights* weights) : weights_(weights) {
  const ShardPlan& plan = weights->plan();
  targets_.resize(static_cast<size_t>(plan.layout().num_layers()));
  for (size_t tensor = 0; tensor < plan.tensors().size(); ++tensor) {
    if (weights->TargetOf(tensor) < 0) continue;
    targets_[static_cast<size_t>(plan.tensors()[tensor]->layer)].push_back(tensor);
  }
}

absl::StatusOr<std::unique_ptr<AdapterGradients>> AdapterGradients::Create(
    LoraWeights* weights, OrderedCommunicator* communicator, Ledger* ledger) {
  std::unique_ptr<AdapterGradients> gradients(new AdapterGradients(weights));
  Device* const device = weights->device();
  TANDEM_ASSIGN_OR_RETURN(
      gradients->layer_,
      device->Reserve("gradients", weights->plan().layout().group_elements(0) * kFloat32Bytes,
                      ledger));
  TANDEM_ASSIGN_OR_RETURN(gradients->sums_,
                          AdapterGradientSums::Create(weights, communicator, ledger));
  return gradients;
}

absl::Status AdapterGradients::Begin() {
  TANDEM_RETURN_IF_ERROR(layer_->Map());
  return sums_->Begin();
}

absl::StatusOr<float*> AdapterGradients::Group(int layer) {
  if (layer < 0) return nullptr;
  weights_->device()->Zero(layer_->data(),
                           weights_->plan().layout().group_elements(layer) * kFloat32Bytes);
  return reinterpret_cast<float*>(layer_->data());
}

void AdapterGradients::SelectTargets(int layer, LayerGradients* view) const {
  const auto wanted = [&](const std::string& stored_as) {
    const std::vector<size_t>& targets = targets_[static_cast<size_t>(layer)];
    return std::any_of(targets.begin(), targets.end(), [&](size_t tensor) {
      return stored_as == weights_->plan().tensors()[tensor]->stored_as;
    });
  };
  *view = {.qkv = wanted("qkv") ? view->qkv : nullptr,
           .o = wanted("o") ? view->o : nullptr,
           .gate_up = wanted("gate_up") ? view->gate_up : nullptr,
           .down = wanted("down") ? view->down : nullptr};
}

absl::Status AdapterGradients::Reduce(int layer) {
  ShardOps& ops = *weights_->adapters().ops();
  const auto* const gradients = reinterpret_cast<const float*>(layer_->data());
  for (const size_t tensor : targets_[static_cast<size_t>(layer)]) {
    const TensorPlace& place = *weights_->plan().tensors()[tensor];
    const auto target = static_cast<size_t>(weights_->TargetOf(tensor));
    ops.AddLoraGradients({.dw = gradients + place.gradient_offset,
                          .b = weights_->b(target),
                          .a = weights_->a(target),
                          .scaling = weights_->spec().scaling(),
                          .rows = place.rows(),
                          .in = place.cols(),
                          .rank = weights_->spec().rank,
                          .db = sums_->Of(target, LoraMatrix::kB),
                          .da = sums_->Of(target, LoraMatrix::kA)});
  }
  return absl::OkStatus();
}

absl::Status AdapterGradients::Finish() { return sums_->Finish(); }

absl::Status AdapterGradients::Release() {
  TANDEM_RETURN_IF_ERROR(LogReleaseFailure(layer_->Release()));
  return sums_->Release();
}

}  // namespace tandem
