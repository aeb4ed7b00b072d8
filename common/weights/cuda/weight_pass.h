// The kernel that weights go through on a GPU: it copies, rounds or scrambles ranges of tensors,
// digests what it writes, or only re-reads and digests; all ranges of a call in one launch.
#pragma once

#include <cstdint>

#include "common/device/cuda/cuda_stream.h"

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

// `runs` [count] lie in device memory, and have `tiles` in all. `sums`: [pairs][2] in device
// memory, to which the blocks' sums are added (BlockSums, digest_blocks.h; a last block that is
// short is padded with zeros), or null, where nothing is digested.
struct WeightPass {
  const WeightRun* runs = nullptr;
  int64_t count = 0;
  int64_t tiles = 0;
  uint64_t* sums = nullptr;
};

void LaunchWeightPass(WeightPassKind kind, const WeightPass& pass, CudaStream stream);

}  // namespace tandem
