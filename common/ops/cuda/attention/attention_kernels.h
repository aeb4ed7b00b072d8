// The launchers of the attention kernels. All pointers are device addresses.
#pragma once

#include <cstdint>

#include "common/device/cuda/launch.h"
#include "common/ops/cuda/attention/attention_layout.h"

namespace tandem::attention {

struct Heads {
  int heads = 0, kv_heads = 0, head_dim = 0;
  Group group;  // heads / kv_heads
};

// x [*, stride]: q, k and v columns in bf16.
struct RopeArgs {
  uint16_t* x = nullptr;
  int64_t stride = 0;
  Heads heads;
  const float *cos = nullptr, *sin = nullptr;  // [positions, head_dim / 2]
  const RowPlace* rows = nullptr;
  int64_t row_count = 0;
  unsigned char* kv = nullptr;
  int64_t block_bytes = 0;
};
void RotateAndStore(const RopeArgs& args, CudaStream stream);
// Rotates by the opposite angle; stores nothing and does not read `kv`.
void RotateBack(const RopeArgs& args, CudaStream stream);

struct ForwardArgs {
  const uint16_t* qkv = nullptr;
  int64_t qkv_stride = 0;
  uint16_t* out = nullptr;
  int64_t out_stride = 0;
  const unsigned char* kv = nullptr;
  int64_t block_bytes = 0;
  Heads heads;
  float scale_log2 = 0;  // of scores, times log2(e)
  const int32_t* tables = nullptr;
  const QueryTile* tiles = nullptr;
  int64_t tile_count = 0;
  // Segments of a tile that are launched side by side as blocks of their own; 1: one block
  // processes all segments of its tile.
  int segments = 1;
  // With segments > 1: [slots, head_dim] and [slots, 2] of PartialSlot; `queries` is the largest
  // number in a tile.
  float *partial_sums = nullptr, *partial_stats = nullptr;
  int queries = 0;
};
// Processes tiles of up to kWarpQueries (one warp) or kManyWarps * kWarpQueries queries.
void ForwardTiles(const ForwardArgs& args, int warps, CudaStream stream);
// Computes the rows of tiles with more than one segment from the partial results.
void CombineSegments(const ForwardArgs& args, CudaStream stream);

struct BackwardArgs {
  const uint16_t* qkv = nullptr;
  int64_t qkv_stride = 0;
  const uint16_t* out = nullptr;
  int64_t out_stride = 0;
  const uint16_t* dout = nullptr;
  int64_t dout_stride = 0;
  uint16_t* dqkv = nullptr;
  int64_t dqkv_stride = 0;
  Heads heads;
  float scale = 0, scale_log2 = 0;  // of scores; the second times log2(e)
  const BackwardSpan* spans = nullptr;
  const BackwardTile* tiles = nullptr;
  int64_t tile_count = 0;
  const KeyTile* key_tiles = nullptr;
  int64_t key_tile_count = 0;
  const int32_t* viewers = nullptr;
  const SharedKeyTile* shared_tiles = nullptr;
  int64_t shared_tile_count = 0;
  float* parts = nullptr;  // [parts, kv_heads, 2, kTileKeys, head_dim]
  // [kv_heads, slots] each: log2 of the sum of a query's 2^scores, and its dout · out.
  float *log_sums = nullptr, *deltas = nullptr;
  int64_t slots = 0;
};
// Computes dq, and the statistics that KeyGradients reads.
void QueryGradients(const BackwardArgs& args, CudaStream stream);
// Computes dk and dv; those of the keys in shared_tiles are summed from parts.
void KeyGradients(const BackwardArgs& args, CudaStream stream);

}  // namespace tandem::attention
