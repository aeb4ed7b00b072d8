// The kernel that weights go through on a GPU: it copies, rounds or scrambles ranges of tensors,
// digests the written bytes, or only re-reads and digests; all ranges of a call in one launch.
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
  // What kRound would write is digested, and written nowhere.
  kReadRounded,
};

// A contiguous range of a tensor's bytes, in memory that the device reads and writes. Addresses and
// bytes are multiples of 2; where both addresses are multiples of 16, 16 bytes go at once.
struct WeightRun {
  const void* from = nullptr;
  void* to = nullptr;
  int64_t bytes = 0;        // written, or read where nothing is
  int64_t first_block = 0;  // of the tensor's 64-byte blocks; a run begins with a block
  int64_t first_tile = 0;   // tiles of the runs before it, of kWeightTileBytes
  int64_t sums = 0;         // index of the pair of sums that it adds to
};

inline constexpr int64_t kWeightTileBytes = 32 << 10;

// `runs` [count] are in device memory and have `tiles` in all. `sums`: [pairs][2] in device
// memory, to which the blocks' sums are added (BlockSums, digest_blocks.h; a last block that is
// short is padded with zeros), or null, where nothing is digested.
struct WeightPass {
  const WeightRun* runs = nullptr;
  int64_t count = 0;
  int64_t tiles = 0;
  uint64_t* sums = nullptr;
};

void LaunchWeightPass(WeightPassKind kind, const WeightPass& pass, CudaStream stream);

// The kernels of adapters on a GPU: merging them into rows of their weight, and their gradients
// from the weight's. Arrays are the device's, or host memory that it reaches, and need the
// alignment of their elements only. No element, no launch. Thread-safe as launches are.

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
