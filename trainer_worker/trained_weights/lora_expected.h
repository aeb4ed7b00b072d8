// The weights that a rollout should hold under LoRA: the base from its files, with the current
// adapters or with those of a directory.
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

// The host merges the base, read from its files, with the adapters; if adapters stay separate, the
// rows are the unchanged base's and the rounded masters'. The base in memory, sent data and a GPU's
// merging have no part in the result. Every rank reads for itself, so calls are not collective. Not
// thread-safe.
class LoraExpectedWeights : public ExpectedWeights {
 public:
  // `weights`, whose adapters have been gathered, outlives the object. If `adapter_dir` is not
  // empty, the adapters are read from its files instead. Allocates memory for two ranges of rows
  // and, under the tag gather, for a tensor's A and a range of B unless those are in host memory.
  // Errors as HfCheckpoint and PeftAdapter; InvalidArgument: the directory's rank, alpha or targets
  // differ from the run's; ResourceExhausted: there is not enough memory.
  static absl::StatusOr<std::unique_ptr<LoraExpectedWeights>> Open(
      const std::string& model_dir,
      const ModelSpec& spec,
      const LoraWeights* weights,
      bool merged,
      Ledger* ledger,
      const std::string& adapter_dir = "");
  LoraExpectedWeights(const LoraWeights* weights, Ledger* ledger)
      : weights_(weights), a_(weights->device(), ledger), b_(weights->device(), ledger) {}
  absl::StatusOr<const void*> Rows(const TensorRows& rows) override;
  absl::StatusOr<std::vector<int64_t>> ExchangeCounts(int64_t mine) override {
    return std::vector<int64_t>{mine};
  }

 private:
  // Rows of the adapter matrix that the place names.
  absl::StatusOr<const void*> AdapterRows(const TensorRows& rows, const LoraTarget& target);
  const LoraTarget* AdapterOf(const std::string& name) const;
  // Rows of a target's matrix in fp32, in host memory, valid until the next call for the same kind
  // of matrix (A or B).
  absl::StatusOr<const float*> Matrix(size_t target, LoraMatrix matrix, int64_t row, int64_t rows);

  std::unique_ptr<const HfCheckpoint> checkpoint_;
  std::unique_ptr<const PeftAdapter> on_disk_;  // null: the adapters are those in memory
  const LoraWeights* const weights_;
  bool merge_ = true;
  DType base_dtype_ = DType::kFloat32;
  std::unique_ptr<MemoryRegion> base_, merged_;
  HostStaging a_, b_;  // for adapters on a device or in files
};

}  // namespace tandem
