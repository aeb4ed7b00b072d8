// What a rollout should hold under LoRA: the base as its files have it, with the current adapters
// or with those of a directory.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <absl/status/statusor.h>

#include "common/formats/hf_checkpoint.h"
#include "common/formats/peft/peft_adapter.h"
#include "trainer_worker/shard/shard_array.h"
#include "trainer_worker/trained_weights/lora_weights.h"
#include "trainer_worker/weight_sync/weight_check.h"

namespace tandem {

// Where adapters are not merged: the base as it is, and their masters, rounded. Neither the base in
// memory nor what was sent has a part in it, nor has a GPU's merging: the host merges. Every rank
// reads for itself, so that calls are not collective. Not thread-safe.
class LoraReferenceWeights : public ReferenceWeights {
 public:
  // `weights`, whose adapters are gathered, outlives it. `adapter_dir` not empty: the adapters are
  // those of its files, and nothing in memory has a part in what they are. Takes memory for two
  // ranges of rows, and under the tag gather for a tensor's A and a range of B where those are not
  // in the host's memory. Errors as HfCheckpoint and PeftAdapter; InvalidArgument: the directory's
  // rank, alpha or targets are others than the run's; ResourceExhausted: there is no memory.
  static absl::StatusOr<std::unique_ptr<LoraReferenceWeights>> Open(
      const std::string& model_dir,
      const ModelSpec& spec,
      const LoraWeights* weights,
      bool merged,
      Ledger* ledger,
      const std::string& adapter_dir = "");
  LoraReferenceWeights(const LoraWeights* weights, Ledger* ledger)
      : weights_(weights), a_(weights->device(), ledger), b_(weights->device(), ledger) {}
  absl::StatusOr<const void*> Rows(const TensorRows& rows) override;
  absl::StatusOr<std::vector<int64_t>> ExchangeCounts(int64_t mine) override {
    return std::vector<int64_t>{mine};
  }

 private:
  // Of an adapter's matrix, which its name says.
  absl::StatusOr<const void*> AdapterRows(const TensorRows& rows, const LoraTarget& target);
  const LoraTarget* AdapterOf(const std::string& name) const;
  // Of a matrix of a target, in fp32, where the host reads it, until the next call for its kind.
  absl::StatusOr<const float*> Matrix(size_t target, LoraMatrix matrix, int64_t row, int64_t rows);

  std::unique_ptr<const HfCheckpoint> checkpoint_;
  std::unique_ptr<const PeftAdapter> on_disk_;  // null: the adapters in memory
  const LoraWeights* const weights_;
  bool merge_ = true;
  DType base_dtype_ = DType::kFloat32;
  std::unique_ptr<MemoryRegion> base_, merged_;
  HostStaging a_, b_;  // a device's, or a file's
};

}  // namespace tandem
