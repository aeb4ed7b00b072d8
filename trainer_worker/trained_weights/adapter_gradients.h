// Accumulates a rank's full gradients of adapters until the mini-batch ends: in the shard's own
// gradients with a single rank, else in memory for all adapters, which is summed over ranks once.
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
  // All pointers outlive the object, except that `communicator` may be destroyed before it.
  static absl::StatusOr<std::unique_ptr<AdapterGradientSums>> Create(
      LoraWeights* weights, OrderedCommunicator* communicator, Ledger* ledger);
  // Allocates the memory if it is not allocated, and zeroes it. The shard's own gradients are
  // zeroed by their owner.
  absl::Status Begin();
  // The gradient of a matrix of spec().targets[target], dense.
  float* Of(size_t target, LoraMatrix matrix) const;
  // Collective: writes the sums over ranks to the shard's gradients.
  absl::Status Finish();
  absl::Status Release();

 private:
  AdapterGradientSums(LoraWeights* weights, OrderedCommunicator* communicator)
      : weights_(weights), communicator_(communicator) {}

  LoraWeights* const weights_;
  OrderedCommunicator* const communicator_;
  std::unique_ptr<MemoryRegion> sums_;  // null with a single rank
};

// Computes the gradients of adapters from full gradients of merged weights: of W' = W + s B A,
//   dB = s dW' Aᵀ,  dA = s Bᵀ dW',
// with the gradient passed straight through the rounding of W' (Hu et al., arXiv 2106.09685,
// section 4.1). The base needs no gradients: those of merged weights are in memory for one layer at
// a time, and are not summed over ranks. On each rank the adapters' gradients of all micro-batches
// are summed in fp32, in the order of the micro-batches; at the end they are summed over ranks
// once. Not thread-safe.
class AdapterGradients : public GradientAccumulator {
 public:
  // All pointers outlive the object, except that `communicator` may be destroyed before it.
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
  // For each layer, the plan's tensors that have adapters.
  std::vector<std::vector<size_t>> targets_;
  std::unique_ptr<MemoryRegion> layer_;  // full gradients of a layer's merged weights
  std::unique_ptr<AdapterGradientSums> sums_;
};

}  // namespace tandem
