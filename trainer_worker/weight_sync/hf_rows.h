// Rows of a HF checkpoint on disk, as the oracle of a weight check.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <absl/status/statusor.h>

#include "common/device/device.h"
#include "common/formats/checkpoint_dir.h"
#include "common/model_spec/model_spec.h"
#include "trainer_worker/weight_sync/weight_check.h"

namespace tandem {

// Not collective: every rank reads for itself. Not thread-safe.
class HfRows : public WeightOracle {
 public:
  // `dtype` is the layout's. Takes memory for a range, under the tag gather. Errors as
  // HfCheckpoint; ResourceExhausted: there is no memory.
  static absl::StatusOr<std::unique_ptr<HfRows>> Open(const std::string& model_dir,
                                                      const ModelSpec& spec,
                                                      DType dtype,
                                                      Device* device,
                                                      Ledger* ledger);
  absl::StatusOr<const void*> Rows(const TensorRows& rows) override;
  absl::StatusOr<std::vector<int64_t>> ShareNumber(int64_t mine) override {
    return std::vector<int64_t>{mine};
  }

 private:
  std::unique_ptr<const HfCheckpoint> checkpoint_;
  DType dtype_ = DType::kBFloat16;
  std::unique_ptr<MemoryRegion> scratch_;
};

}  // namespace tandem
