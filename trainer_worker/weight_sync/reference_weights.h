// Rows of a HF checkpoint on disk, as the oracle of a weight check.
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

// Not collective: every rank reads for itself. Not thread-safe.
class CheckpointWeights : public ReferenceWeights {
 public:
  // `dtype` is the layout's. Takes memory for a range, under the tag gather. Errors as
  // HfCheckpoint; ResourceExhausted: there is no memory.
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

// Rows of full tensors, rounded from the ranks' masters: the oracle of a weight check, and what the
// HF export of a checkpoint is written from. The rounded copy has no part in them.
struct MasterWeightsOptions {
  DType dtype = DType::kBFloat16;  // of the rows
  int64_t scratch_bytes = 0;       // RowScratchBytes; the same on all ranks
  int receiver = -1;               // the rank that gets rows; -1: every rank
};

// Collective: every rank calls for the same rows in the same order. Not thread-safe. Offloaded
// masters are in memory only while their range is read.
class MasterWeights : public ReferenceWeights {
 public:
  // Collective. Takes the scratch, under the tag gather, for the life of the object; everything
  // passed in outlives it. ResourceExhausted: there is no memory; Aborted: another rank has none.
  static absl::StatusOr<std::unique_ptr<MasterWeights>> Create(WeightRows* policy,
                                                               Communicator* communicator,
                                                               Ledger* ledger,
                                                               const MasterWeightsOptions& options);
  // In host memory. Null on ranks that are not the receiver.
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
