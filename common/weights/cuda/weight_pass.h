// GPU kernels of weights. The weight pass copies, rounds or scrambles ranges of tensors and digests
// the written bytes, or only reads and digests; all ranges of a call go in one launch. The adapter
// kernels merge adapters and compute their gradients.
#pragma once

#include <cstdint>

#include "common/device/cuda/launch.h"
#include "common/lora/lora_gradients.h"
#include "common/lora/merge.h"

namespace tandem {

enum class WeightPassKind {
  kCopy,   // bytes as they are
  kRound,  // `from` is fp32, what is written bf16, rounded to nearest even
  kRead,   // nothing is written
  kNan,    // 0xff bytes are written, nothing is read
  // The result of kRound is digested but not written.
  kReadRounded,
};

// A contiguous range of a tensor's bytes, in memory that the device reads and writes. Addresses and
// bytes are multiples of 2; if both addresses are multiples of 16, accesses have 16 bytes.
struct WeightRun {
  const void* from = nullptr;
  void* to = nullptr;
  int64_t bytes = 0;        // written or, by kinds that write nothing, read
  int64_t first_block = 0;  // index of the tensor's 64-byte block with which the run begins
  int64_t first_tile = 0;   // number of tiles of kWeightTileBytes in the runs before it
  int64_t sums = 0;         // index of the pair of sums that it adds to
};

inline constexpr int64_t kWeightTileBytes = 32 << 10;

// `runs` [count] are in device memory and have `tiles` in total. The blocks' sums are added to
// `sums` [pairs][2] in device memory (BlockSums, digest_blocks.h; a short last block is padded with
// zeros). Null: nothing is digested.
struct WeightPass {
  const WeightRun* runs = nullptr;
  int64_t count = 0;
  int64_t tiles = 0;
  uint64_t* sums = nullptr;
};

void LaunchWeightPass(WeightPassKind kind, const WeightPass& pass, CudaStream stream);

// Kernels for adapters on a GPU: they merge adapters into rows of their weight, and derive the
// adapters' gradients from the weight's. Arrays are in device memory, or in host memory that the
// device reaches, and need only the alignment of their elements. Without elements nothing is
// launched. As thread-safe as launches are.

// Like MergeRows, with the same formula and bits; the rule is kServed. Rows [rows, rank] of B and A
// go through shared memory in tiles, in ascending rank.
void LaunchMerge(CudaStream stream, const MergeBlock& block);

// Like AddLoraGradients, but with fused multiply-adds and an order of sums that depends on the
// shapes alone: an element of dB sums the columns in chunks of 16, chunk c in lane c % 8, each lane
// ascending, then the lanes in ascending order, and that sum, times s, is added. An element of dA
// sums rows, (s * B) * dW, in chunks of 8, chunk c in lane c % 16, in the same way.
void LaunchAddLoraGradients(CudaStream stream, const LoraGradientBlock& block);

// Converts bf16 to fp32.
void LaunchWiden(CudaStream stream, const Bf16* values, float* wide, int64_t count);

}  // namespace tandem
