#include "trainer_worker/trained_weights/adapter_lora.h"

#include <algorithm>
#include <unordered_map>
#include <utility>

#include <fmt/format.h>

#include "common/base/status.h"
#include "common/comm/communicator.h"
#include "common/model_spec/row_ranges.h"
#include "trainer_worker/shard/master_digests.h"

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

std::vector<UnmergedPolicy::Part> UnmergedPolicy::PartsOf(const ShardPlan& plan,
                                                          const LoraWeights& weights) {
  std::unordered_map<std::string, Part> named;
  const ShardPlan& base = weights.plan();
  for (size_t tensor = 0; tensor < base.tensors().size(); ++tensor) {
    named[base.tensors()[tensor]->name] = {.base = tensor};
  }
  const std::vector<LoraTarget>& targets = weights.spec().targets;
  for (size_t i = 0; i < targets.size(); ++i) {
    const auto target = static_cast<int>(i);
    named[targets[i].module + ".lora_A.weight"] = {.target = target, .matrix = LoraMatrix::kA};
    named[targets[i].module + ".lora_B.weight"] = {.target = target, .matrix = LoraMatrix::kB};
  }
  std::vector<Part> parts;
  for (const TensorPlace* place : plan.tensors()) parts.push_back(named.at(place->name));
  return parts;
}

UnmergedPolicy::UnmergedPolicy(const ShardPlan* plan, LoraWeights* weights, ShardOps* ops)
    : plan_(plan), weights_(weights), ops_(ops), parts_(PartsOf(*plan, *weights)), digests_(plan) {}

absl::StatusOr<std::unique_ptr<UnmergedPolicy>> UnmergedPolicy::Create(const ShardPlan* plan,
                                                                       LoraWeights* weights,
                                                                       const ShardCompute& compute,
                                                                       Ledger* ledger) {
  std::unique_ptr<UnmergedPolicy> policy(new UnmergedPolicy(plan, weights, compute.ops));
  TANDEM_ASSIGN_OR_RETURN(
      policy->scratch_,
      compute.device->Reserve("gather", PieceDigestScratchBytes(*plan, *compute.device), ledger));
  return policy;
}

absl::Status UnmergedPolicy::AdaptersChanged() {
  TANDEM_RETURN_IF_ERROR(scratch_->Map());
  for (size_t tensor = 0; tensor < parts_.size(); ++tensor) {
    if (parts_[tensor].target < 0 && digested_) continue;
    TANDEM_RETURN_IF_ERROR(DigestPiece(*this, tensor, *ops_, *scratch_, digests_));
  }
  digested_ = true;
  return scratch_->Release();
}

absl::StatusOr<std::vector<Digest>> UnmergedPolicy::Digests(Communicator& communicator) const {
  const absl::Status gathered =
      digested_ ? absl::OkStatus()
                : FailedPrecondition("the adapters were not gathered since they were made");
  TANDEM_RETURN_IF_ERROR(Agree(communicator, gathered, "digesting adapters").status());
  TANDEM_RETURN_IF_ERROR(weights_->CheckGathered(communicator));
  return digests_.OfTensors(communicator);
}

absl::Status UnmergedPolicy::CopyRows(
    size_t tensor, int64_t row, int64_t rows, DType dtype, void* out) {
  const Part& part = parts_[tensor];
  if (part.target < 0) return weights_->base().CopyRows(part.base, row, rows, dtype, out);
  const auto target = static_cast<size_t>(part.target);
  const float* const all =
      part.matrix == LoraMatrix::kA ? weights_->a(target) : weights_->b(target);
  const int64_t cols = plan_->tensors()[tensor]->cols();
  ops_->Convert(all + (plan_->mine(tensor).row + row) * cols, DType::kFloat32, out, dtype,
                rows * cols);
  return absl::OkStatus();
}

absl::Status UnmergedPolicy::Reference::CopyRows(
    size_t tensor, int64_t row, int64_t rows, DType dtype, void* out) {
  if (policy_->parts_[tensor].target < 0) {
    return policy_->CopyRows(tensor, row, rows, dtype, out);
  }
  const int64_t cols = policy_->plan_->tensors()[tensor]->cols();
  device()->Zero(out, rows * cols * static_cast<int64_t>(DTypeBytes(dtype)));
  return absl::OkStatus();
}

}  // namespace tandem
