// The kernels of adapters on a GPU: merging them into rows of their weight, and their gradients
// from the weight's. Arrays are the device's, or host memory that it reaches, and need the
// alignment of their elements only. No element, no launch. Thread-safe as launches are.
#pragma once

#include <cstdint>

#include "common/device/cuda/cuda_stream.h"
#include "common/lora/lora_gradients.h"
#include "common/lora/merge.h"

namespace tandem {

// As MergeRows, by its very formula and bits; the rule is kServed. Rows [rows, rank] of B and A go
// through shared memory by tiles, in ascending rank.
void LaunchMerge(CudaStream stream, const MergeBlock& block);

// As AddLoraGradients, with fused multiply-adds and in an order of its own, which the shapes alone
// decide: an element of dB sums the columns in chunks of 16, chunk c in lane c % 8, each lane
// ascending, then the lanes in ascending order, and that sum, times s, is added. An element of dA
// sums rows, (s * B) * dW, in chunks of 8, chunk c in lane c % 16, in the same way.
void LaunchAddLoraGradients(CudaStream stream, const LoraGradientBlock& block);

// To fp32.
void LaunchWiden(CudaStream stream, const Bf16* values, float* wide, int64_t count);

}  // namespace tandem
