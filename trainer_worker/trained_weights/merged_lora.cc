#include "trainer_worker/trained_weights/merged_lora.h"

#include "common/base/log.h"
#include "common/base/status.h"
#include "trainer_worker/trained_weights/adapter_gradients.h"
#include "trainer_worker/weight_sync/weight_sources.h"

namespace tandem {

absl::StatusOr<std::unique_ptr<TrainedWeights>> MergedLora::Create(
    const TrainedWeightsOptions& options, const ModelSpec& base, const RankContext& rank) {
  LogInfo("weight sync: through slots, as adapters are merged on the way");
  std::unique_ptr<MergedLora> weights(new MergedLora(options, rank));
  TANDEM_RETURN_IF_ERROR(weights->Allocate(base, rank.plan));
  TANDEM_ASSIGN_OR_RETURN(weights->digests_,
                          RowDigests::Create(weights->lora_.get(), rank.plan->layout().dtype(),
                                             rank.compute.ops, rank.ledger));
  TANDEM_ASSIGN_OR_RETURN(
      weights->gradients_,
      AdapterGradients::Create(weights->lora_.get(), rank.communicator, rank.ledger));
  return weights;
}

absl::Status MergedLora::OnWeightsChanged() {
  TANDEM_RETURN_IF_ERROR(lora_->Gather(*rank_.communicator));
  return digests_->Take([this](size_t tensor) { return lora_->TargetOf(tensor) >= 0; });
}

std::unique_ptr<WeightSource> MergedLora::MakeWeightSource() {
  const auto digest = [this](Communicator& ranks) -> absl::StatusOr<std::vector<Digest>> {
    TANDEM_RETURN_IF_ERROR(lora_->CheckGathered(ranks));
    return digests_->OfTensors(ranks);
  };
  return std::make_unique<GatheredWeightSource>(lora_.get(), digest, rank_.communicator);
}

}  // namespace tandem
