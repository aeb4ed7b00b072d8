// What the host and the kernels of attention's backward agree on. Plain arithmetic: also for tests.
#pragma once

#include <cstdint>

#include "common/ops/cuda/attention/attention_layout.h"

namespace tandem::attention {

// Queries of a block that computes dq, over tiles of kTileKeys keys.
inline constexpr int kBackwardQueries = kManyWarps * kWarpQueries;
// Queries that pass at once over the kTileKeys keys of a block that computes dk and dv. Half of the
// others: the sums of two gradients fill the registers.
inline constexpr int kPassingQueries = 32;

// A span as backward reads it. Its queries are counted as in QueryTile.
struct BackwardSpan {
  int32_t first_row, rows, first_position, prefix_row;
  int32_t stats;  // the slot of its query 0; slots are of each KV head
};
// kBackwardQueries queries of a span from first_query on.
struct BackwardTile {
  int32_t span, first_query;
};
// kTileKeys rows of a span from `first` on, and the spans viewers[begin..end) whose queries see
// them: the span itself, then those that continue its prefix, in order.
struct KeyTile {
  int32_t span, first, begin, end;
  int32_t part;  // where its sums go if these are not all viewers; else -1
};
// A tile whose viewers are cut into parts, whose sums are part..part + parts - 1, to be added in
// this order. Without that the keys of a long group's prompt would keep one block busy long after
// all others are done.
struct SharedKeyTile {
  int32_t span, first, part, parts;
};
inline constexpr int kMostParts = kMostKeyParts;
static_assert(kTileKeys == kKeyTileRows);
// fp32 sums of dk and dv of one part and KV head.
TANDEM_BOTH constexpr int64_t PartFloats(int head_dim) { return 2 * kTileKeys * head_dim; }

static_assert(PartFloats(64) * 4 == KeyPartsBytes(1, 1, 64));

// The row of a position that the span's queries see.
TANDEM_BOTH int RowOfKey(const BackwardSpan& span, int position) {
  return position < span.first_position ? span.prefix_row + position
                                        : span.first_row + position - span.first_position;
}
// The last position that a query of `span` sees of the keys of its own span, or of those of the
// span whose prefix it continues.
TANDEM_BOTH int LastKeySeen(const BackwardSpan& span, int row, bool own) {
  return own ? span.first_position + row : span.first_position - 1;
}
// The first of the own queries that pass over a tile of keys: a multiple of kPassingQueries.
TANDEM_BOTH int FirstPassing(int first_key_row, int group) {
  return first_key_row * group / kPassingQueries * kPassingQueries;
}
// Slots of statistics of a span, so that its tiles begin on 16 bytes.
constexpr int64_t StatsSlots(int64_t rows, int64_t group) {
  return (rows * group + kBackwardQueries - 1) / kBackwardQueries * kBackwardQueries;
}

// Shared memory: q, dout and two tiles of k and of v.
constexpr LaunchShape QueryGradientShape(int64_t tiles, int64_t kv_heads, int head_dim) {
  LaunchShape shape;
  shape.grid_x = static_cast<unsigned>(tiles);
  shape.grid_y = static_cast<unsigned>(kv_heads);
  shape.threads = kManyWarps * 32;
  shape.shared_bytes = static_cast<unsigned>(6 * KeyTileBytes(head_dim) + kBackwardQueries * 4);
  return shape;
}
// Shared memory: k, v, two tiles each of half as many rows of q and dout, and two of what goes with
// them: log-sum-exp, delta and the last key that they see.
constexpr LaunchShape KeyGradientShape(int64_t tiles, int64_t kv_heads, int head_dim) {
  LaunchShape shape;
  shape.grid_x = static_cast<unsigned>(tiles);
  shape.grid_y = static_cast<unsigned>(kv_heads);
  shape.threads = kManyWarps * 32;
  shape.shared_bytes =
      static_cast<unsigned>(4 * KeyTileBytes(head_dim) + 2 * 3 * kPassingQueries * 4);
  return shape;
}

// A thread adds the parts of 8 elements.
constexpr LaunchShape AddPartsShape(int64_t tiles, int64_t kv_heads, int head_dim) {
  LaunchShape shape;
  shape.threads = 256;
  shape.grid_x = static_cast<unsigned>(PartFloats(head_dim) / 8 / 256);
  shape.grid_y = static_cast<unsigned>(kv_heads);
  shape.grid_z = static_cast<unsigned>(tiles);
  return shape;
}

}  // namespace tandem::attention
