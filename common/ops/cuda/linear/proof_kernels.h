// Launchers of the kernels (proof_kernels.cu) that row_invariance.cc needs.
#pragma once

#include <cstdint>

#include "common/device/cuda/launch.h"

namespace tandem::cuda {

// bf16 numbers in [-1, 1) that `seed` and the index decide; `elements` is a multiple of 8.
void LaunchFillNumbers(void* to, int64_t elements, uint32_t seed, CudaStream stream);

// differences += the 4-byte words in which a and b differ.
void LaunchCountDifferences(
    const void* a, const void* b, int64_t words, uint32_t* differences, CudaStream stream);

// count += the elements of a and b, both bf16 or both fp32, that are further apart than `absolute`
// and 2^-7 of the larger one, or no numbers.
void LaunchCountFar(const void* a,
                    const void* b,
                    int64_t elements,
                    bool bf16,
                    float absolute,
                    uint32_t* count,
                    CudaStream stream);

}  // namespace tandem::cuda
