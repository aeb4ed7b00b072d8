// Rows of full tensors, rounded from the ranks' masters: the oracle of a weight check, and what the
// HF export of a checkpoint is written from. The rounded copy has no part in them.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include <absl/status/statusor.h>

#include "common/comm/communicator.h"
#include "common/device/memory_region.h"
#include "trainer_worker/shard/weight_rows.h"
#include "trainer_worker/weight_sync/weight_check.h"

namespace tandem {

struct MasterRowsOptions {
  DType dtype = DType::kBFloat16;  // of the rows
  int64_t scratch_bytes = 0;       // RowScratchBytes; the same on all ranks
  int receiver = -1;               // the rank that gets rows; -1: every rank
};

// Collective: every rank calls for the same rows in the same order. Not thread-safe. Offloaded
// masters are in memory only while their range is read.
class MasterRows : public WeightOracle {
 public:
  // Collective. Takes the scratch, under the tag gather, for the life of the object; everything
  // passed in outlives it. ResourceExhausted: there is no memory; Aborted: another rank has none.
  static absl::StatusOr<std::unique_ptr<MasterRows>> Create(PolicyRows* policy,
                                                            Communicator* communicator,
                                                            Ledger* ledger,
                                                            const MasterRowsOptions& options);
  // In host memory. Null on ranks that are not the receiver.
  absl::StatusOr<const void*> Rows(const TensorRows& rows) override;
  absl::StatusOr<std::vector<int64_t>> ShareNumber(int64_t mine) override;

 private:
  MasterRows(PolicyRows* policy, Communicator* communicator, const MasterRowsOptions& options)
      : policy_(policy), communicator_(communicator), options_(options) {}
  PolicyRows* const policy_;
  Communicator* const communicator_;
  const MasterRowsOptions options_;
  std::unique_ptr<MemoryRegion> scratch_;
};

}  // namespace tandem
