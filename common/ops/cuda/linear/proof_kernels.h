// Launchers of the kernels (proof_kernels.cu) that row_invariance.cc needs.
#pragma once

#include <cstdint>

#include "common/device/cuda/launch.h"

namespace tandem::cuda {

// Fills with bf16 numbers in [-1, 1) that depend on `seed` and the index; `elements` is a multiple
// of 8.
void LaunchFillNumbers(void* to, int64_t elements, uint32_t seed, CudaStream stream);

// differences += the 4-byte words in which a and b differ.
void LaunchCountDifferences(
    const void* a, const void* b, int64_t words, uint32_t* differences, CudaStream stream);

// count += the number of elements at which a and b, both bf16 or both fp32, differ by more than
// `absolute` and by more than 2^-7 of the larger one, or are not numbers.
void LaunchCountFar(const void* a,
                    const void* b,
                    int64_t elements,
                    bool bf16,
                    float absolute,
                    uint32_t* count,
                    CudaStream stream);

}  // namespace tandem::cuda
