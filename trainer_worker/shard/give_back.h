// Memory that a trainer gives back while others use its device.
#pragma once

#include <absl/status/status.h>

namespace tandem {

// `released` is what a region's Release said. That the device does not show its bytes as free in
// time, a GPU's FailedPrecondition after which the pages are given back all the same
// (common/device/cuda/cuda_region.h), is logged and no error: a lost rollout that starts beside its
// trainer takes memory at any moment. What is missing then is part of what the pair's ledgers do
// not count.
absl::Status GivenBack(const absl::Status& released);

}  // namespace tandem
