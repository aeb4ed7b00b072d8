#include "common/ops/cuda/attention/attention_plan.h"

#include <algorithm>
#include <array>
#include <bit>
#include <numeric>
#include <optional>
#include <utility>

#include "common/base/check.h"
#include "common/ops/cuda/attention/attention.h"

namespace tandem {

namespace attention {

namespace {

// The two rows of `rope`, each of half_dim numbers, that a RopeKey keeps.
std::array<const float*, 2> SampledRows(const RopeTable& rope) {
  const auto half = static_cast<size_t>(rope.half_dim);
  const size_t last = rope.sin.size() - half;
  return {rope.sin.data() + std::min(half, last), rope.sin.data() + last};
}

}  // namespace

RopeKey RopeKey::Of(const RopeTable& rope) {
  RopeKey key = {rope.cos.data(), rope.sin.data(), rope.cos.size(), rope.half_dim, {}};
  for (const float* row : SampledRows(rope)) {
    key.sample.insert(key.sample.end(), row, row + rope.half_dim);
  }
  return key;
}

bool RopeKey::Is(const RopeTable& rope) const {
  if (cos != rope.cos.data() || sin != rope.sin.data() || size != rope.cos.size() ||
      half_dim != rope.half_dim) {
    return false;
  }
  const auto rows = SampledRows(rope);
  const auto middle = sample.begin() + half_dim;
  return std::equal(sample.begin(), middle, rows[0]) && std::equal(middle, sample.end(), rows[1]);
}

}  // namespace attention

CudaAttention::State::Forward& CudaAttention::State::SlotOf(const std::vector<AttentionSpan>& spans,
                                                            int64_t group,
                                                            bool* same) {
  Forward* oldest = forwards.data();
  for (Forward& forward : forwards) {
    *same = forward.asked > 0 && forward.group == group && forward.spans.Equals(spans);
    if (*same) return forward;
    if (forward.asked < oldest->asked) oldest = &forward;
  }
  return *oldest;
}

const CudaAttention::State::Forward& CudaAttention::State::PlanOf(
    CudaContext& context,
    const std::vector<AttentionSpan>& spans,
    const attention::Heads& heads,
    const KvLayer& kv) {
  // All layers of a step have the same spans (ForwardOps::BeginStep): they are compared once and
  // not twice per layer, while the device waits for the step.
  bool same = context.in_graph() && forwards[newest].epoch == context.upload_epoch();
  Forward& forward = same ? forwards[newest] : SlotOf(spans, heads.group.size, &same);
  forward.asked = ++questions;
  newest = static_cast<size_t>(&forward - forwards.data());
  if (!same) {
    forward.spans.Keep(spans);
    forward.group = heads.group.size;
    forward.plan = attention::PlanForward(spans, heads.group.size);
  }
  const attention::ForwardPlan& plan = forward.plan;
  TANDEM_CHECK(plan.min_block >= 0 && plan.max_block < kv.num_blocks, "KV block outside the pool");
  if (!same || forward.epoch != context.upload_epoch()) {
    forward.epoch = context.upload_epoch();
    forward.few = context.Upload(plan.few);
    forward.many = context.Upload(plan.many);
    forward.tables = context.Upload(plan.tables);
    forward.rows = context.Upload(plan.rows);
  }
  return forward;
}

const CudaAttention::State::Backward& CudaAttention::State::BackwardPlanOf(
    CudaContext& context, const std::vector<AttentionSpan>& spans, const attention::Heads& heads) {
  const bool same = backward.group == heads.group.size && backward.spans.Equals(spans);
  if (!same) {
    backward.spans.Keep(spans);
    backward.group = heads.group.size;
    backward.plan = attention::PlanBackward(spans, heads.group.size);
  }
  if (!same || backward.epoch != context.upload_epoch()) {
    backward.epoch = context.upload_epoch();
    backward.device_spans = context.Upload(backward.plan.spans);
    backward.tiles = context.Upload(backward.plan.tiles);
    backward.key_tiles = context.Upload(backward.plan.key_tiles);
    backward.viewers = context.Upload(backward.plan.viewers);
    backward.shared_tiles = context.Upload(backward.plan.shared_tiles);
    backward.rows = context.Upload(backward.plan.rows);
  }
  return backward;
}

void CudaAttention::State::FreeRope(CudaContext& context) {
  if (rope_memory == nullptr) return;
  // Kernels that read it may still run, and graphs contain its address.
  context.DropGraphs();
  context.Keep(context.Synchronize());
  context.Keep(context.Free(rope_memory, rope_bytes));
  rope_memory = nullptr;
  rope_bytes = 0;
}

const float* CudaAttention::State::DeviceRope(CudaContext& context, const RopeTable& table) {
  const auto count = static_cast<int64_t>(table.cos.size());
  const int64_t bytes = count * static_cast<int64_t>(sizeof(float));
  if (!rope.Is(table)) {
    if (!context.eager()) {
      // A graph copies from the address of the table at its recording each time it is launched.
      TANDEM_CHECK(rope_bytes == 2 * bytes, "a graph's step has a rope table of another size");
      context.RefuseGraph();
      return reinterpret_cast<const float*>(rope_memory);
    }
    // Not scratch: forward and backward use one context but have objects of their own, and must not
    // overwrite each other's table.
    if (rope_bytes != 2 * bytes) {
      FreeRope(context);
      rope = attention::RopeKey();
      rope_memory = context.Allocate("the rope table", 2 * bytes);
      if (rope_memory == nullptr) return nullptr;
      rope_bytes = 2 * bytes;
    }
    if (context.failed()) return nullptr;
    context.Copy(rope_memory, table.cos.data(), bytes);
    context.Copy(rope_memory + bytes, table.sin.data(), bytes);
    rope = attention::RopeKey::Of(table);
  }
  return reinterpret_cast<const float*>(rope_memory);
}

int64_t AttentionSegmentBound(const std::vector<AttentionSpan>& spans) {
  int64_t last = 0;
  for (const AttentionSpan& span : spans) {
    last = std::max(last, span.first_position + span.rows - 1);
  }
  return static_cast<int64_t>(
      std::bit_ceil(static_cast<uint64_t>(last / attention::kSegmentKeys + 1)));
}

namespace attention {
namespace {

int64_t BlocksOf(const AttentionSpan& span) {
  return span.blocks == nullptr ? 0 : KvBlocksFor(span.first_position + span.rows);
}

void AddTiles(const AttentionSpan& span, int64_t group, int64_t table, ForwardPlan& plan) {
  const int64_t queries = span.rows * group;
  const bool few = queries <= kFewQueries;
  const int64_t most = few ? kWarpQueries : kManyWarps * kWarpQueries;
  for (int64_t first = 0; first < queries; first += most) {
    QueryTile tile;
    tile.first_row = static_cast<int32_t>(span.first_row);
    tile.first_position = static_cast<int32_t>(span.first_position);
    tile.first_query = static_cast<int32_t>(first);
    tile.queries = static_cast<int32_t>(std::min(most, queries - first));
    tile.table = static_cast<int32_t>(table);
    (few ? plan.few : plan.many).push_back(tile);
    if (few) plan.few_queries = std::max(plan.few_queries, tile.queries);
  }
}

// Tiles with the most work first, so that the last ones to start are short.
template <typename T>
void SortByWork(std::vector<T>& tiles, const std::vector<int64_t>& work) {
  std::vector<size_t> order(tiles.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return work[a] > work[b]; });
  std::vector<T> sorted;
  sorted.reserve(tiles.size());
  for (const size_t index : order) sorted.push_back(tiles[index]);
  tiles = std::move(sorted);
}

// For each span, the spans that continue its prefix; nullopt if a prefix is not found.
std::optional<std::vector<std::vector<int32_t>>> SharersOf(
    const std::vector<AttentionSpan>& spans) {
  std::vector<std::vector<int32_t>> sharers(spans.size());
  for (size_t i = 0; i < spans.size(); ++i) {
    const AttentionSpan& span = spans[i];
    if (span.first_position == 0) continue;
    const auto root = std::find_if(spans.begin(), spans.begin() + static_cast<std::ptrdiff_t>(i),
                                   [&](const AttentionSpan& earlier) {
                                     return earlier.first_position == 0 &&
                                            earlier.first_row == span.prefix_row &&
                                            earlier.rows >= span.first_position;
                                   });
    if (root == spans.begin() + static_cast<std::ptrdiff_t>(i)) return std::nullopt;
    sharers[static_cast<size_t>(root - spans.begin())].push_back(static_cast<int32_t>(i));
  }
  return sharers;
}

// The tile of keys that begins at row `first` of span `index`, in as many parts as its viewers
// need.
void AddKeyTiles(const std::vector<AttentionSpan>& spans,
                 int32_t index,
                 int64_t first,
                 const std::vector<int32_t>& viewers,
                 BackwardPlan& plan,
                 std::vector<int64_t>& rows_seeing) {
  const size_t parts = std::min(viewers.size(), size_t{kMostParts});
  const auto row = static_cast<int32_t>(first);
  const auto at = static_cast<int32_t>(plan.viewers.size());
  if (parts > 1) {
    plan.shared_tiles.push_back(
        {index, row, static_cast<int32_t>(plan.parts), static_cast<int32_t>(parts)});
  }
  for (size_t part = 0; part < parts; ++part) {
    const size_t begin = part * viewers.size() / parts;
    const size_t end = (part + 1) * viewers.size() / parts;
    plan.key_tiles.push_back({index, row, at + static_cast<int32_t>(begin),
                              at + static_cast<int32_t>(end),
                              parts > 1 ? static_cast<int32_t>(plan.parts++) : -1});
    int64_t rows = part == 0 ? -first : 0;
    for (size_t i = begin; i < end; ++i) rows += spans[static_cast<size_t>(viewers[i])].rows;
    rows_seeing.push_back(rows);
  }
  plan.viewers.insert(plan.viewers.end(), viewers.begin(), viewers.end());
}

}  // namespace

ForwardPlan PlanForward(const std::vector<AttentionSpan>& spans, int64_t group) {
  ForwardPlan plan;
  plan.segment_bound = AttentionSegmentBound(spans);
  const int64_t table_blocks = plan.segment_bound * kSegmentTiles;
  plan.tables.resize(spans.size() * static_cast<size_t>(table_blocks));
  for (size_t i = 0; i < spans.size(); ++i) {
    const AttentionSpan& span = spans[i];
    if (span.rows == 0) continue;
    const int64_t table = static_cast<int64_t>(i) * table_blocks;
    const int64_t blocks = BlocksOf(span);
    TANDEM_CHECK(blocks > 0, "a span of an attention call has no KV blocks");
    std::copy_n(span.blocks, blocks, plan.tables.begin() + table);
    const auto [low, high] = std::minmax_element(span.blocks, span.blocks + blocks);
    plan.min_block = std::min(plan.min_block, *low);
    plan.max_block = std::max(plan.max_block, *high);
    plan.last_position = std::max(plan.last_position, span.first_position + span.rows - 1);
    AddTiles(span, group, table, plan);
    for (int64_t row = 0; row < span.rows; ++row) {
      const int64_t position = span.first_position + row;
      plan.rows.push_back({static_cast<int32_t>(span.first_row + row),
                           static_cast<int32_t>(position), span.blocks[position / kTileKeys]});
    }
  }
  std::vector<int64_t> keys;
  for (const QueryTile& tile : plan.many) {
    keys.push_back(LastPosition(tile, Group::Of(group)));
  }
  SortByWork(plan.many, keys);
  return plan;
}

BackwardPlan PlanBackward(const std::vector<AttentionSpan>& spans, int64_t group) {
  BackwardPlan plan;
  const auto sharers = SharersOf(spans);
  plan.prefixes_found = sharers.has_value();
  std::vector<int64_t> keys, rows_seeing;  // of each tile, and of each tile of keys
  for (size_t i = 0; i < spans.size(); ++i) {
    const AttentionSpan& span = spans[i];
    const auto index = static_cast<int32_t>(i);
    plan.spans.push_back({static_cast<int32_t>(span.first_row), static_cast<int32_t>(span.rows),
                          static_cast<int32_t>(span.first_position),
                          static_cast<int32_t>(span.prefix_row), static_cast<int32_t>(plan.slots)});
    plan.slots += StatsSlots(span.rows, group);
    plan.last_position = std::max(plan.last_position, span.first_position + span.rows - 1);
    for (int64_t row = 0; row < span.rows; ++row) {
      plan.rows.push_back({static_cast<int32_t>(span.first_row + row),
                           static_cast<int32_t>(span.first_position + row), 0});
    }
    for (int64_t first = 0; first < span.rows * group; first += kBackwardQueries) {
      plan.tiles.push_back({index, static_cast<int32_t>(first)});
      keys.push_back(span.first_position + first / group);
    }
    for (int64_t first = 0; first < span.rows; first += kTileKeys) {
      std::vector<int32_t> viewers = {index};
      for (const int32_t sharer : sharers ? (*sharers)[i] : std::vector<int32_t>()) {
        const AttentionSpan& other = spans[static_cast<size_t>(sharer)];
        if (other.first_position > first && other.rows > 0) viewers.push_back(sharer);
      }
      AddKeyTiles(spans, index, first, viewers, plan, rows_seeing);
    }
  }
  SortByWork(plan.tiles, keys);
  SortByWork(plan.key_tiles, rows_seeing);
  return plan;
}

void SpanContents::Keep(const std::vector<AttentionSpan>& spans) {
  spans_ = spans;
  blocks_.clear();
  for (const AttentionSpan& span : spans) {
    blocks_.insert(blocks_.end(), span.blocks, span.blocks + BlocksOf(span));
  }
  kept_ = true;
}

bool SpanContents::Equals(const std::vector<AttentionSpan>& spans) const {
  if (!kept_ || spans.size() != spans_.size()) return false;
  auto block = blocks_.begin();
  for (size_t i = 0; i < spans.size(); ++i) {
    const AttentionSpan &a = spans_[i], &b = spans[i];
    if (a.first_row != b.first_row || a.rows != b.rows || a.first_position != b.first_position ||
        a.prefix_row != b.prefix_row || (a.blocks == nullptr) != (b.blocks == nullptr) ||
        !std::equal(b.blocks, b.blocks + BlocksOf(b), block)) {
      return false;
    }
    block += BlocksOf(b);
  }
  return true;
}

}  // namespace attention

}  // namespace tandem
