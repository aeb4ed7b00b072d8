// The optimizer's loops over flat device arrays (adamw.cu): elementwise, with the bits of
// cpu/adamw.h; denormals are kept. Arrays need only the alignment of their elements. Without
// elements nothing is launched. As thread-safe as launches are.
#pragma once

#include <cstdint>

#include "common/device/cuda/launch.h"
#include "common/memory/cuda_scratch.h"
#include "common/ops/ops_types.h"

namespace tandem {

// One step (ops_types.h has the formula) over arrays on the device. Adds the number of changed
// elements of `rounded` to *changed, which is on the device too.
void LaunchAdamW(CudaStream stream,
                 const AdamWArrays& arrays,
                 const AdamWFactors& factors,
                 uint64_t* changed);
// Rounds to bf16, nearest even. Unless `changed` is null, adds the number of results that differ
// from the old values; if it is null, `rounded` is not read.
void LaunchRoundArray(
    CudaStream stream, const float* values, Bf16* rounded, int64_t count, uint64_t* changed);

// The sum of squares in double, in an order that depends on `count` alone: as on a CPU, eight
// running sums for each block of 4,096 values; then groups of 256 of those in ascending order.
// Gives SquareGroups(count) results, which the host adds in ascending order. lanes
// [SquareLanes(count)] and groups [SquareGroups(count)] are on the device.
void LaunchSumOfSquares(
    CudaStream stream, const float* values, int64_t count, double* lanes, double* groups);

}  // namespace tandem
