// Where full gradients of adapters add up on a rank until the mini-batch ends: the shard's own with
// a single rank, else memory for all of them, summed over ranks once.
#pragma once

#include <memory>
#include <vector>

#include <absl/status/statusor.h>

#include "common/comm/ordered_communicator.h"
#include "trainer_worker/layers/gradient_accumulator.h"
#include "trainer_worker/trained_weights/lora_weights.h"

namespace tandem {

// Not thread-safe.
class AdapterGradientSums {
 public:
  // All pointers outlive the object, only `communicator` may end before it.
  static absl::StatusOr<std::unique_ptr<AdapterGradientSums>> Create(
      LoraWeights* weights, OrderedCommunicator* communicator, Ledger* ledger);
  // Takes the memory if it is not held; all zero. The shard's own are its owner's to zero.
  absl::Status Begin();
  // Of a matrix of spec().targets[target], dense.
  float* Of(size_t target, LoraMatrix matrix) const;
  // Collective: the sums over ranks go to the shard's gradients.
  absl::Status Finish();
  absl::Status Release();

 private:
  AdapterGradientSums(LoraWeights* weights, OrderedCommunicator* communicator)
      : weights_(weights), communicator_(communicator) {}

  LoraWeights* const weights_;
  OrderedCommunicator* const communicator_;
  std::unique_ptr<MemoryRegion> sums_;  // null with a single rank
};

// From full gradients of merged weights to those of adapters: of W' = W + s B A,
//   dB = s dW' Aᵀ,  dA = s Bᵀ dW',
// straight through the rounding of W' (Hu et al., arXiv 2106.09685, section 4.1). The base has no
// gradients: one layer's are in memory at a time, and are not summed over ranks.

// The adapters' gradients of all micro-batches add up in fp32 on each rank, in their order, and are
// summed over ranks once, at the end. Not thread-safe.
class AdapterGradients : public GradientAccumulator {
 public:
  // All pointers outlive the object, only `communicator` may end before it.
  static absl::StatusOr<std::unique_ptr<AdapterGradients>> Create(LoraWeights* weights,
                                                                  OrderedCommunicator* communicator,
                                                                  Ledger* ledger);

  absl::Status Begin() override;
  absl::StatusOr<float*> Group(int layer) override;
  void SelectTargets(int layer, LayerGradients* view) const override;
  absl::Status Reduce(int layer) override;
  absl::Status Finish() override;
  absl::Status Release() override;

 private:
  explicit AdapterGradients(LoraWeights* weights);

  LoraWeights* const weights_;
  std::vector<std::vector<size_t>> targets_;  // of each layer: tensors of the plan that have one
  std::unique_ptr<MemoryRegion> layer_;       // full gradients of a layer's merged weights
  std::unique_ptr<AdapterGradientSums> sums_;
};

}  // namespace tandem
