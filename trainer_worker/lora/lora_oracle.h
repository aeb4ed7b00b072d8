// What a rollout should hold under LoRA: the base as its files have it, with the current adapters.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <absl/status/statusor.h>

#include "common/tensor_file/checkpoint_dir.h"
#include "common/weights/weight_check.h"
#include "trainer_worker/host_staging.h"
#include "trainer_worker/lora/lora_weights.h"

namespace tandem {

// Where adapters are not merged: the base as it is, and their masters, rounded. Neither the base in
// memory nor what was sent has a part in it, nor has a GPU's merging: the host merges. Every rank
// reads for itself, so that calls are not collective. Not thread-safe.
class LoraOracle : public WeightOracle {
 public:
  // `weights`, whose adapters are gathered, outlives it. Takes memory for two ranges of rows, of a
  // device also for a tensor's A and a range of B, under the tag gather. Errors as HfCheckpoint;
  // ResourceExhausted: there is no memory.
  static absl::StatusOr<std::unique_ptr<LoraOracle>> Open(const std::string& model_dir,
                                                          const ModelSpec& spec,
                                                          const LoraWeights* weights,
                                                          bool merged,
                                                          Ledger* ledger);
  LoraOracle(const LoraWeights* weights, Ledger* ledger)
      : weights_(weights), a_(weights->device(), ledger), b_(weights->device(), ledger) {}
  absl::StatusOr<const void*> Rows(const TensorRows& rows) override;
  absl::StatusOr<std::vector<int64_t>> ShareNumber(int64_t mine) override {
    return std::vector<int64_t>{mine};
  }

 private:
  // Of an adapter's matrix, which its name says.
  absl::StatusOr<const void*> AdapterRows(const TensorRows& rows, const LoraTarget& target);
  const LoraTarget* AdapterOf(const std::string& name) const;

  std::unique_ptr<const HfCheckpoint> checkpoint_;
  const LoraWeights* const weights_;
  bool merge_ = true;
  DType base_dtype_ = DType::kFloat32;
  std::unique_ptr<MemoryRegion> base_, merged_;
  HostStaging a_, b_;  // a device's
};

}  // namespace tandem
