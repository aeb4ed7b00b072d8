// The optimizer's loops over flat device arrays (adamw.cu): elementwise, with the bits of
// cpu/adamw.h; denormals stay what they are. Arrays need the alignment of their elements only.
// No element, no launch. Thread-safe as launches are.
#pragma once

#include <cstdint>

#include "common/device/cuda/launch.h"
#include "common/memory/cuda_scratch.h"
#include "common/ops/ops_types.h"

namespace tandem {

// One step (ops_types.h has the formula) over arrays on the device. *changed, which is on the
// device as well, grows by how many of `rounded` changed.
void LaunchAdamW(CudaStream stream,
                 const AdamWArrays& arrays,
                 const AdamWFactors& factors,
                 uint64_t* changed);
// Rounds to bf16, nearest even. *changed += how many results differ from what was there, unless
// null, when `rounded` is not read.
void LaunchRoundArray(
    CudaStream stream, const float* values, Bf16* rounded, int64_t count, uint64_t* changed);

// The sum of squares in double, in an order of its own that `count` alone decides: eight running
// sums for each block of 4,096 values, as on a CPU; then each 256 of those in ascending order. Adds
// up SquareGroups(count) results, which the host adds in ascending order.
// lanes [SquareLanes(count)] and groups [SquareGroups(count)] on the device.
void LaunchSumOfSquares(
    CudaStream stream, const float* values, int64_t count, double* lanes, double* groups);

}  // namespace tandem
