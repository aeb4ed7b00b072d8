// A source of weights that has every tensor whole.
#pragma once

#include <cstddef>

#include <absl/status/statusor.h>

#include "common/base/status.h"
#include "trainer_worker/weight_sync/weight_publisher.h"

namespace tandem::testing {

class WholeTensors : public WeightSource {
 public:
  // Full dense row-major rows in the layout's dtype, valid until the next call; once per tensor and
  // pass.
  virtual absl::StatusOr<const void*> Gather(const TensorPlace& place) = 0;
  absl::StatusOr<const void*> GatherRows(const TensorRows& rows, std::byte* /*dest*/) override {
    if (rows.row == 0) {
      TANDEM_ASSIGN_OR_RETURN(const void* tensor, Gather(*rows.place));
      gathered_ = static_cast<const std::byte*>(tensor);
    }
    return gathered_ + rows.row * rows.row_bytes;
  }

 private:
  const std::byte* gathered_ = nullptr;
};

}  // namespace tandem::testing
