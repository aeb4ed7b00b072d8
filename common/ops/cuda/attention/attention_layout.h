// The constants and types on which the host and the attention kernels agree: tiles, segments,
// swizzles, tasks and the shapes of launches. Plain arithmetic, which tests use too.
#pragma once

#include <cstdint>

#include "common/device/cuda/launch.h"
#include "common/memory/cuda_scratch.h"
#include "common/memory/op_sizes.h"

#ifdef __CUDACC__
#define TANDEM_BOTH __host__ __device__ __forceinline__
#else
#define TANDEM_BOTH inline
#endif

namespace tandem::attention {

// Keys of a tile: a KV block, so that a tile is contiguous in memory.
inline constexpr int kTileKeys = 64;
static_assert(kTileKeys == kKvBlockTokens);
// An online softmax runs over this many tiles, starting at a multiple of them; the results of a
// row's segments are then added in ascending order. Part of the numerics, whatever the batch.
inline constexpr int kSegmentTiles = 8;
inline constexpr int kSegmentKeys = kSegmentTiles * kTileKeys;
// Queries of a warp, which are the rows of one tensor-core fragment.
inline constexpr int kWarpQueries = 16;
// Warps of a block that handles many rows. Spans of few queries use one warp per block.
inline constexpr int kManyWarps = 4;
// Up to this many queries, a span counts as one of few queries: it is split into tiles of one warp,
// one segment each.
inline constexpr int kFewQueries = 2 * kWarpQueries;

// Divides by the number of query heads that share a KV head by multiplying: exact for numerators
// below 2^31 / size (Granlund and Montgomery, "Division by invariant integers using
// multiplication").
struct Group {
  int size = 1;
  uint32_t inverse = uint32_t{1} << 31;  // 2^31 / size, rounded up

  static constexpr Group Of(int64_t size) {
    return {static_cast<int>(size), static_cast<uint32_t>(((int64_t{1} << 31) + size - 1) / size)};
  }
  TANDEM_BOTH int Divide(int n) const {
    return static_cast<int>(static_cast<uint64_t>(static_cast<uint32_t>(n)) * inverse >> 31);
  }
};

// Queries of one KV head in a span are numbered [row][head of the group]: query q belongs to row q
// / group. The queries of a tile pass over the keys together.
struct QueryTile {
  int32_t first_row;       // of the span in the matrix
  int32_t first_position;  // of that row
  int32_t first_query;     // of the tile, in the span
  int32_t queries;
  int32_t table;  // where the span's block ids begin in the array of all spans' block ids
};

TANDEM_BOTH int RowOf(const QueryTile& tile, int query, const Group& group) {
  return group.Divide(tile.first_query + query);
}
TANDEM_BOTH int HeadOf(const QueryTile& tile, int query, const Group& group) {
  return tile.first_query + query - RowOf(tile, query, group) * group.size;
}
TANDEM_BOTH int PositionOf(const QueryTile& tile, int query, const Group& group) {
  return tile.first_position + RowOf(tile, query, group);
}
TANDEM_BOTH int LastPosition(const QueryTile& tile, const Group& group) {
  return PositionOf(tile, tile.queries - 1, group);
}
// The number of tiles of keys, and of segments, that contain positions 0..position.
TANDEM_BOTH int TilesTo(int position) { return position / kTileKeys + 1; }
TANDEM_BOTH int SegmentsTo(int position) { return position / kSegmentKeys + 1; }

// Number of segments of a tile that get blocks of their own; 1: one block processes all of them.
// Beyond kMostSegmentBlocks, segments need not run side by side to fill a device.
constexpr int64_t SegmentsSideBySide(int64_t tiles, int64_t kv_heads, int64_t bound) {
  return tiles * kv_heads * bound <= kMostSegmentBlocks ? bound : 1;
}

// The place of a 16-byte chunk in a shared-memory tile whose rows have `chunks` such chunks (8 or
// 16), in units of 16 bytes: the 8 rows that ldmatrix reads at once use all 32 banks.
TANDEM_BOTH int Swizzled(int row, int chunk, int chunks) {
  return row * chunks + (chunk ^ (row & 7));
}

// Partial results of segments that run side by side: slot s has [head_dim] sums, and their maximum
// and total.
TANDEM_BOTH int64_t PartialSlot(int64_t tile,
                                int64_t kv_head,
                                int64_t segment,
                                int64_t query,
                                int64_t kv_heads,
                                int64_t segments,
                                int64_t queries) {
  return ((tile * kv_heads + kv_head) * segments + segment) * queries + query;
}

// Shared memory of the forward kernel: two tiles of K and two of V, and the queries, whose place is
// later used for a thread's results of earlier segments.
constexpr int EarlierFloats(int head_dim) { return head_dim / 2 + 4; }
TANDEM_BOTH constexpr int KeyTileBytes(int head_dim) { return kTileKeys * head_dim * 2; }
constexpr LaunchShape ForwardShape(
    int64_t tiles, int64_t segments, int64_t kv_heads, int warps, int head_dim) {
  LaunchShape shape;
  shape.grid_x = static_cast<unsigned>(tiles * segments);
  shape.grid_y = static_cast<unsigned>(kv_heads);
  shape.threads = static_cast<unsigned>(warps * 32);
  shape.shared_bytes =
      static_cast<unsigned>(4 * KeyTileBytes(head_dim) + warps * 32 * EarlierFloats(head_dim) * 4);
  return shape;
}

// One warp adds up the segments of one query.
inline constexpr int kCombineWarps = 4;
constexpr LaunchShape CombineShape(int64_t slots) {
  LaunchShape shape;
  shape.grid_x = static_cast<unsigned>((slots + kCombineWarps - 1) / kCombineWarps);
  shape.threads = kCombineWarps * 32;
  return shape;
}

// A row whose q and k are rotated, and whose k and v are stored in `block`.
struct RowPlace {
  int32_t row, position, block;
};
// A thread handles 8 elements of each half of a head, or 8 of v.
constexpr LaunchShape RopeShape(int64_t rows, int64_t items_per_row) {
  LaunchShape shape;
  shape.threads = 256;
  shape.grid_x = static_cast<unsigned>((rows * items_per_row + 255) / 256);
  return shape;
}

// The same for attention's backward.

// Queries of a block that computes dq, which passes over tiles of kTileKeys keys.
inline constexpr int kBackwardQueries = kManyWarps * kWarpQueries;
// Queries that pass at once over the kTileKeys keys of a block that computes dk and dv: half as
// many as for dq, because the sums of two gradients fill the registers.
inline constexpr int kPassingQueries = 32;

// A span for the backward pass. Its queries are numbered as in QueryTile.
struct BackwardSpan {
  int32_t first_row, rows, first_position, prefix_row;
  int32_t stats;  // the slot of its query 0; slots are of each KV head
};
// kBackwardQueries queries of a span, starting at first_query.
struct BackwardTile {
  int32_t span, first_query;
};
// kTileKeys rows of a span, starting at `first`, and the spans viewers[begin..end) whose queries
// see them: the span itself, then the spans that continue its prefix, in order.
struct KeyTile {
  int32_t span, first, begin, end;
  int32_t part;  // where its sums are stored if these are not all viewers; else -1
};
// A tile whose viewers are divided into parts, because otherwise the keys of a long group's prompt
// would keep one block busy long after all others are done. Its sums are part..part + parts - 1,
// which are added in this order.
struct SharedKeyTile {
  int32_t span, first, part, parts;
};
inline constexpr int kMostParts = kMostKeyParts;
static_assert(kTileKeys == kKeyTileRows);
// fp32 sums of dk and dv for one part and KV head.
TANDEM_BOTH constexpr int64_t PartFloats(int head_dim) { return 2 * kTileKeys * head_dim; }

static_assert(PartFloats(64) * 4 == KeyPartsBytes(1, 1, 64));

// The matrix row of a position that the span's queries see.
TANDEM_BOTH int RowOfKey(const BackwardSpan& span, int position) {
  return position < span.first_position ? span.prefix_row + position
                                        : span.first_row + position - span.first_position;
}
// The last position that a query of `span` sees, among the keys of its own span (`own`) or of the
// span whose prefix it continues.
TANDEM_BOTH int LastKeySeen(const BackwardSpan& span, int row, bool own) {
  return own ? span.first_position + row : span.first_position - 1;
}
// The first of the span's own queries that pass over a tile of keys: a multiple of kPassingQueries.
TANDEM_BOTH int FirstPassing(int first_key_row, int group) {
  return first_key_row * group / kPassingQueries * kPassingQueries;
}
// Slots for the statistics of a span, padded so that its tiles begin at multiples of 16 bytes.
constexpr int64_t StatsSlots(int64_t rows, int64_t group) {
  return (rows * group + kBackwardQueries - 1) / kBackwardQueries * kBackwardQueries;
}

// Shared memory: q, dout, and two tiles each of k and v.
constexpr LaunchShape QueryGradientShape(int64_t tiles, int64_t kv_heads, int head_dim) {
  LaunchShape shape;
  shape.grid_x = static_cast<unsigned>(tiles);
  shape.grid_y = static_cast<unsigned>(kv_heads);
  shape.threads = kManyWarps * 32;
  shape.shared_bytes = static_cast<unsigned>(6 * KeyTileBytes(head_dim) + kBackwardQueries * 4);
  return shape;
}
// Shared memory: k, v, two tiles each of half as many rows of q and dout, and two each of their
// log-sum-exp, delta and last key seen.
constexpr LaunchShape KeyGradientShape(int64_t tiles, int64_t kv_heads, int head_dim) {
  LaunchShape shape;
  shape.grid_x = static_cast<unsigned>(tiles);
  shape.grid_y = static_cast<unsigned>(kv_heads);
  shape.threads = kManyWarps * 32;
  shape.shared_bytes =
      static_cast<unsigned>(4 * KeyTileBytes(head_dim) + 2 * 3 * kPassingQueries * 4);
  return shape;
}

// A thread adds up the parts of 8 elements.
constexpr LaunchShape AddPartsShape(int64_t tiles, int64_t kv_heads, int head_dim) {
  LaunchShape shape;
  shape.threads = 256;
  shape.grid_x = static_cast<unsigned>(PartFloats(head_dim) / 8 / 256);
  shape.grid_y = static_cast<unsigned>(kv_heads);
  shape.grid_z = static_cast<unsigned>(tiles);
  return shape;
}

}  // namespace tandem::attention
