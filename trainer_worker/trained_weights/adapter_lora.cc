#include "trainer_worker/trained_weights/adapter_lora.h"

#include <unordered_map>
#include <utility>

#include <fmt/format.h>

#include "common/base/log.h"
#include "common/base/status.h"
#include "trainer_worker/weight_sync/weight_sources.h"

namespace tandem {

AdapterLoraGradients::AdapterLoraGradients(const ModelSpec& spec, LoraWeights* weights)
    : products_(AdaptedProducts(spec)), weights_(weights) {}

absl::StatusOr<std::unique_ptr<AdapterLoraGradients>> AdapterLoraGradients::Create(
    const ModelSpec& spec,
    LoraWeights* weights,
    OrderedCommunicator* communicator,
    Ledger* ledger) {
  std::unique_ptr<AdapterLoraGradients> gradients(new AdapterLoraGradients(spec, weights));
  TANDEM_ASSIGN_OR_RETURN(gradients->sums_,
                          AdapterGradientSums::Create(weights, communicator, ledger));
  return gradients;
}

void AdapterLoraGradients::SelectTargets(int layer, LayerGradients* view) const {
  *view = {};
  LinearAdapterGradients* const products[] = {&view->qkv_adapter, &view->o_adapter,
                                              &view->gate_up_adapter, &view->down_adapter};
  const std::vector<LoraTarget>& targets = weights_->spec().targets;
  for (size_t i = 0; i < products_.size(); ++i) {
    for (size_t part = 0; part < products_[i].modules.size(); ++part) {
      const std::string weight =
          fmt::format("model.layers.{}.{}.weight", layer, products_[i].modules[part]);
      const LoraTarget* const target = weights_->spec().Find(weight);
      if (target == nullptr) continue;
      const auto index = static_cast<size_t>(target - targets.data());
      products[i]->a[part] = sums_->Of(index, LoraMatrix::kA);
      products[i]->b[part] = sums_->Of(index, LoraMatrix::kB);
    }
  }
}

AdapterLora::AdapterLora(const TrainedWeightsOptions& options,
                         const ModelSpec& base,
                         const RankContext& rank)
    : LoraTraining(options, rank),
      base_layout_(WeightLayout::Build(base, rank.plan->layout().dtype())),
      base_plan_(&base_layout_, rank.plan->rank(), rank.plan->world_size()) {}

absl::StatusOr<std::unique_ptr<TrainedWeights>> AdapterLora::Create(
    const TrainedWeightsOptions& options, const ModelSpec& base, const RankContext& rank) {
  LogInfo("weight sync: through slots, adapters alone where the rollout holds the base");
  std::unique_ptr<AdapterLora> weights(new AdapterLora(options, base, rank));
  TANDEM_RETURN_IF_ERROR(weights->Allocate(base, &weights->base_plan_));
  weights->parts_ = weights->FindParts();
  TANDEM_ASSIGN_OR_RETURN(weights->digests_,
                          RowDigests::Create(weights.get(), rank.plan->layout().dtype(),
                                             rank.compute.ops, rank.ledger));
  TANDEM_ASSIGN_OR_RETURN(weights->gradients_,
                          AdapterLoraGradients::Create(*rank.spec, weights->lora_.get(),
                                                       rank.communicator, rank.ledger));
  return weights;
}

std::vector<AdapterLora::Part> AdapterLora::FindParts() const {
  std::unordered_map<std::string, Part> named;
  for (size_t tensor = 0; tensor < base_plan_.tensors().size(); ++tensor) {
    named[base_plan_.tensors()[tensor]->name] = {.base = tensor};
  }
  const std::vector<LoraTarget>& targets = lora_->spec().targets;
  for (size_t i = 0; i < targets.size(); ++i) {
    const auto target = static_cast<int>(i);
    named[targets[i].module + ".lora_A.weight"] = {.target = target, .matrix = LoraMatrix::kA};
    named[targets[i].module + ".lora_B.weight"] = {.target = target, .matrix = LoraMatrix::kB};
  }
  std::vector<Part> parts;
  for (const TensorPlace* place : plan().tensors()) parts.push_back(named.at(place->name));
  return parts;
}

absl::Status AdapterLora::OnWeightsChanged() {
  TANDEM_RETURN_IF_ERROR(lora_->Gather(*rank_.communicator));
  return digests_->Take([this](size_t tensor) { return parts_[tensor].target >= 0; });
}

std::unique_ptr<WeightSource> AdapterLora::MakeWeightSource() {
  const auto digest = [this](Communicator& ranks) -> absl::StatusOr<std::vector<Digest>> {
    TANDEM_RETURN_IF_ERROR(lora_->CheckGathered(ranks));
    return digests_->OfTensors(ranks);
  };
  return std::make_unique<GatheredWeightSource>(this, digest, rank_.communicator);
}

absl::Status AdapterLora::CopyRows(
    size_t tensor, int64_t row, int64_t rows, DType dtype, void* out) {
  const Part& part = parts_[tensor];
  if (part.target < 0) return lora_->base().CopyRows(part.base, row, rows, dtype, out);
  const auto target = static_cast<size_t>(part.target);
  const float* const all = part.matrix == LoraMatrix::kA ? lora_->a(target) : lora_->b(target);
  const int64_t cols = plan().tensors()[tensor]->cols();
  rank_.compute.ops->Convert(all + (plan().mine(tensor).row + row) * cols, DType::kFloat32, out,
                             dtype, rows * cols);
  return absl::OkStatus();
}

absl::Status AdapterLora::Reference::CopyRows(
    size_t tensor, int64_t row, int64_t rows, DType dtype, void* out) {
  if (weights_->parts_[tensor].target < 0) {
    return weights_->CopyRows(tensor, row, rows, dtype, out);
  }
  const int64_t cols = plan().tensors()[tensor]->cols();
  device()->Zero(out, rows * cols * static_cast<int64_t>(DTypeBytes(dtype)));
  return absl::OkStatus();
}

}  // namespace tandem
