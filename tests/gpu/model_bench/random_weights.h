// Weights of an untrained model: normal with a deviation of 0.02, norms 1. The host draws a few
// million numbers once, and the device copies them about, as billions would take minutes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include "common/device/device.h"
#include "common/weights/layout.h"
#include "common/weights/storage_ops.h"

namespace tandem::testing {

bool IsNorm(const TensorPlace& place);

// Numbers on a device to copy weights from.
class RandomNumbers {
 public:
  // As many of `dtype` as the tensors of `layout` need.
  static absl::StatusOr<std::unique_ptr<RandomNumbers>> Create(Device* device,
                                                               const WeightLayout& layout,
                                                               DType dtype);
  // The most that Next() takes.
  int64_t most() const { return drawn_ / 2; }
  // The next `elements` random ones; others than before, as a rule.
  const std::byte* Next(int64_t elements);
  // As many ones as the longest norm has.
  const std::byte* Ones() const { return region_->data() + drawn_ * element_bytes_; }

 private:
  RandomNumbers() = default;
  std::unique_ptr<MemoryRegion> region_;
  int64_t element_bytes_ = 0, drawn_ = 0, next_ = 0;
};

// Every tensor of the storage of `ops`, which is on `device`, mapped and zeroed.
absl::Status FillStorage(Device* device, StorageOps& ops);

}  // namespace tandem::testing
