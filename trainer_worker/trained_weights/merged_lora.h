// Training of adapters that are merged: layers, syncs and exports read merged rows
// (lora_weights.h), and the rollout computes with one weight per product.
#pragma once

#include <memory>

#include <absl/status/statusor.h>

#include "trainer_worker/shard/master_digests.h"
#include "trainer_worker/trained_weights/lora_weights.h"

namespace tandem {

class MergedLora final : public LoraTraining {
 public:
  static absl::StatusOr<std::unique_ptr<TrainedWeights>> Create(
      const TrainedWeightsOptions& options, const ModelSpec& base, const RankContext& rank);

  WeightRows& policy() override { return *lora_; }
  // Reads the same memory, without the adapters.
  absl::StatusOr<WeightRows*> reference() override { return &lora_->base(); }
  absl::Status OnWeightsChanged() override;
  std::unique_ptr<WeightSource> MakeWeightSource() override;

 private:
  MergedLora(const TrainedWeightsOptions& options, const RankContext& rank)
      : LoraTraining(options, rank) {}

  // Digests of the merged rows as of the last OnWeightsChanged, computed separately from all data
  // that is gathered and sent.
  std::unique_ptr<RowDigests> digests_;
};

}  // namespace tandem
