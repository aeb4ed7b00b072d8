#include "trainer_worker/trained_weights/rank_sums.h"

#include <vector>

#include "common/base/status_macros.h"
#include "trainer_worker/shard/give_back.h"

namespace tandem {

absl::StatusOr<std::unique_ptr<RankSums>> RankSums::Create(LoraWeights* weights,
                                                           OrderedCommunicator* communicator,
                                                           Ledger* ledger) {
  std::unique_ptr<RankSums> sums(new RankSums(weights, communicator));
  const ShardPlan& plan = weights->adapters().plan();
  if (plan.world_size() == 1) return sums;
  TANDEM_ASSIGN_OR_RETURN(
      sums->sums_,
      weights->device()->Reserve("gradients", plan.total_elements() * kFloat32Bytes, ledger));
  return sums;
}

absl::Status RankSums::Begin() {
  if (sums_ == nullptr) return absl::OkStatus();
  TANDEM_RETURN_IF_ERROR(sums_->Map());
  weights_->device()->Zero(sums_->data(),
                           weights_->adapters().plan().total_elements() * kFloat32Bytes);
  return absl::OkStatus();
}

float* RankSums::Of(size_t target, LoraMatrix matrix) const {
  const ShardPlan& plan = weights_->adapters().plan();
  const TensorPlace& place =
      plan.layout().places()[2 * target + (matrix == LoraMatrix::kB ? 1 : 0)];
  float* const all =
      sums_ == nullptr ? weights_->adapters().gradients() : reinterpret_cast<float*>(sums_->data());
  return all + place.gradient_offset;
}

absl::Status RankSums::Finish() {
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

absl::Status RankSums::Release() {
  return sums_ == nullptr ? absl::OkStatus() : GivenBack(sums_->Release());
}

}  // namespace tandem
