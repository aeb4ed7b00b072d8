// AdamW over flat fp32 arrays and related loops. All are elementwise, so every instruction set
// gives the bits of the plain formula. Tasks run on a ThreadPool, but keep denormals.
#pragma once

#include <cstdint>
#include <vector>

#include "common/ops/cpu/kernels/kernel_set.h"
#include "common/ops/ops_types.h"
#include "common/process/threads.h"
#include "common/types/tensor_view.h"

namespace tandem {

// The loops that this machine can run, fastest first; tests compare all of them.
const std::vector<const AdamWKernels*>& RunnableAdamWKernels();

// One step over all elements in one pass. Returns how many elements of `rounded` changed; 0 if it
// is null.
int64_t AdamWUpdate(ThreadPool& pool, const AdamWArrays& arrays, const AdamWFactors& factors);
// Rounds to bf16, nearest even; returns how many results differ from what `rounded` held.
int64_t RoundToBf16(ThreadPool& pool, const float* values, Bf16* rounded, int64_t count);
// Sum of squares in double. The lane sums of blocks are added in ascending order, for any number of
// threads.
double SumOfSquares(ThreadPool& pool, const float* values, int64_t count);

}  // namespace tandem
