// The rows that a weight check expects: from a HF checkpoint on disk, or from the ranks' masters.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <absl/status/statusor.h>

#include "common/comm/communicator.h"
#include "common/device/device.h"
#include "common/formats/hf_checkpoint.h"
#include "common/model_spec/model_spec.h"
#include "trainer_worker/shard/weight_rows.h"
#include "trainer_worker/weight_sync/weight_check.h"

namespace tandem {

// Rows of a HF checkpoint. Not collective: every rank reads for itself. Not thread-safe.
class CheckpointWeights : public ExpectedWeights {
 public:
  // `dtype` is the layout's. Allocates memory for a range of rows, under the tag gather. Errors as
  // HfCheckpoint; ResourceExhausted: there is not enough memory.
  static absl::StatusOr<std::unique_ptr<CheckpointWeights>> Open(const std::string& model_dir,
                                                                 const ModelSpec& spec,
                                                                 DType dtype,
                                                                 Device* device,
                                                                 Ledger* ledger);
  absl::StatusOr<const void*> Rows(const TensorRows& rows) override;
  absl::StatusOr<std::vector<int64_t>> ExchangeCounts(int64_t mine) override {
    return std::vector<int64_t>{mine};
  }

 private:
  std::unique_ptr<const HfCheckpoint> checkpoint_;
  DType dtype_ = DType::kBFloat16;
  std::unique_ptr<MemoryRegion> scratch_;
};

// Options of MasterWeights.
struct MasterWeightsOptions {
  DType dtype = DType::kBFloat16;  // of the rows
  int64_t scratch_bytes = 0;       // RowScratchBytes; equal on all ranks
  int receiver = -1;               // the rank that receives rows; -1: every rank
};

// Rows of full tensors, rounded from the ranks' masters without use of the rounded copy: the
// rows that a weight check expects, and the source of a checkpoint's HF export. Collective: every
// rank calls for the same rows in the same order. Offloaded masters are in memory only while their
// range is read. Not thread-safe.
class MasterWeights : public ExpectedWeights {
 public:
  // Collective. Allocates the scratch memory, under the tag gather, for the life of the object; all
  // arguments outlive it. ResourceExhausted: there is not enough memory; Aborted: another rank has
  // not enough.
  static absl::StatusOr<std::unique_ptr<MasterWeights>> Create(WeightRows* policy,
                                                               Communicator* communicator,
                                                               Ledger* ledger,
                                                               const MasterWeightsOptions& options);
  // Returns host memory; null on ranks that do not receive.
  absl::StatusOr<const void*> Rows(const TensorRows& rows) override;
  absl::StatusOr<std::vector<int64_t>> ExchangeCounts(int64_t mine) override;

 private:
  MasterWeights(WeightRows* policy, Communicator* communicator, const MasterWeightsOptions& options)
      : policy_(policy), communicator_(communicator), options_(options) {}
  WeightRows* const policy_;
  Communicator* const communicator_;
  const MasterWeightsOptions options_;
  std::unique_ptr<MemoryRegion> scratch_;
};

}  // namespace tandem
