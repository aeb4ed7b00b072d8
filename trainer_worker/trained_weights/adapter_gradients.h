// From full gradients of merged weights to those of adapters: of W' = W + s B A,
//   dB = s dW' Aᵀ,  dA = s Bᵀ dW',
// straight through the rounding of W' (Hu et al., arXiv 2106.09685, section 4.1). The base has no
// gradients: one layer's are in memory at a time, and are not summed over ranks.
#pragma once

#include <memory>
#include <vector>

#include <absl/status/statusor.h>

#include "common/comm/ordered_communicator.h"
#include "trainer_worker/layers/gradient_accumulator.h"
#include "trainer_worker/trained_weights/merged_lora.h"
#include "trainer_worker/trained_weights/rank_sums.h"

namespace tandem {

// The adapters' gradients of all micro-batches add up in fp32 on each rank, in their order, and are
// summed over ranks once, at the end. Not thread-safe.
class AdapterGradients : public GradientSink {
 public:
  // All pointers outlive the object, only `communicator` may end before it.
  static absl::StatusOr<std::unique_ptr<AdapterGradients>> Create(LoraWeights* weights,
                                                                  OrderedCommunicator* communicator,
                                                                  Ledger* ledger);

  absl::Status Begin() override;
  absl::StatusOr<float*> Group(int layer) override;
  void Choose(int layer, LayerGradients* view) const override;
  absl::Status Reduce(int layer) override;
  absl::Status Finish() override;
  absl::Status Release() override;

 private:
  explicit AdapterGradients(LoraWeights* weights);

  LoraWeights* const weights_;
  std::vector<std::vector<size_t>> targets_;  // of each layer: tensors of the plan that have one
  std::unique_ptr<MemoryRegion> layer_;       // full gradients of a layer's merged weights
  std::unique_ptr<RankSums> sums_;
};

}  // namespace tandem
