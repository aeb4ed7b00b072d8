#include "common/ops/cuda/attention/attention_layout.h"

#include <set>
#include <vector>

#include <catch2/catch.hpp>

#include "common/ops/cuda/attention/attention.h"
#include "common/ops/cuda/attention/attention_plan.h"

namespace tandem::attention {

TEST_CASE("The swizzle is one to one, and 8 rows of a column are in different banks",
          "[ops][cuda][attention]") {
  for (const int chunks : {8, 16}) {
    std::set<int> places;
    for (int row = 0; row < 64; ++row) {
      for (int chunk = 0; chunk < chunks; ++chunk) {
        const int place = Swizzled(row, chunk, chunks);
        REQUIRE(place >= row * chunks);
        REQUIRE(place < (row + 1) * chunks);
        places.insert(place);
      }
    }
    REQUIRE(places.size() == static_cast<size_t>(64 * chunks));
    for (int row = 0; row < 64; row += 8) {
      for (int chunk = 0; chunk < chunks; ++chunk) {
        std::set<int> banks;  // of 16 bytes
        for (int i = 0; i < 8; ++i) banks.insert(Swizzled(row + i, chunk, chunks) % 8);
        REQUIRE(banks.size() == 8);
      }
    }
  }
}

TEST_CASE("Rows of queries are found by a product", "[ops][cuda][attention]") {
  for (int size = 1; size <= 64; ++size) {
    const Group group = Group::Of(size);
    // To rows of 524,287, the most that 64 heads allow; where the quotient changes, and in between.
    for (int64_t row = 0; row < (int64_t{1} << 31) / 64 / size; row += 1 + row / 50) {
      for (const int64_t head : {0, size / 2, size - 1}) {
        REQUIRE(group.Divide(static_cast<int>(row * size + head)) == row);
      }
    }
  }
}

TEST_CASE("Every query of every span is in one tile", "[ops][cuda][attention]") {
  std::vector<int32_t> blocks(40);
  for (int i = 0; i < 40; ++i) blocks[static_cast<size_t>(i)] = 100 + i;
  for (const int size : {1, 3, 4, 8}) {
    const std::vector<AttentionSpan> spans = {{5, 1, 64, blocks.data()},
                                              {6, 32 / size, 100, blocks.data()},
                                              {50, 200, 511, blocks.data()},
                                              {300, 0, 0, nullptr}};
    const ForwardPlan plan = PlanForward(spans, size);
    const Group group = Group::Of(size);
    REQUIRE(plan.segment_bound == 2);
    REQUIRE(plan.last_position == 710);
    REQUIRE(plan.min_block == 0);
    REQUIRE(plan.max_block == 111);
    std::set<std::pair<int, int>> queries;
    size_t count = 0;
    const auto add = [&](const QueryTile& tile, int most) {
      REQUIRE(tile.queries > 0);
      REQUIRE(tile.queries <= most);
      for (int q = 0; q < tile.queries; ++q, ++count) {
        const int row = tile.first_row + RowOf(tile, q, group);
        queries.insert({row, HeadOf(tile, q, group)});
        REQUIRE(
            plan.tables[static_cast<size_t>(tile.table + PositionOf(tile, q, group) / kTileKeys)] ==
            100 + PositionOf(tile, q, group) / kTileKeys);
      }
    };
    for (const QueryTile& tile : plan.few) add(tile, kWarpQueries);
    for (const QueryTile& tile : plan.many) add(tile, kWarpQueries * kManyWarps);
    REQUIRE(queries.size() == count);
    REQUIRE(count == static_cast<size_t>(size * (1 + 32 / size + 200)));
    REQUIRE(TilesTo(LastPosition(plan.many.front(), group)) == 12);
    REQUIRE(plan.rows.size() == static_cast<size_t>(1 + 32 / size + 200));
    REQUIRE(plan.rows.back().row == 249);
    REQUIRE(plan.rows.back().position == 710);
    REQUIRE(plan.rows.back().block == 111);
  }
}

TEST_CASE("A decode step's sizes follow from its rows and the bound", "[ops][cuda][attention]") {
  const std::vector<int32_t> blocks(64, 1);
  const auto step = [&](int64_t a, int64_t b) {
    return std::vector<AttentionSpan>{{0, 1, a, blocks.data()}, {1, 1, b, blocks.data()}};
  };
  REQUIRE(AttentionSegmentBound(step(0, 511)) == 1);
  REQUIRE(AttentionSegmentBound(step(512, 3)) == 2);
  REQUIRE(AttentionSegmentBound(step(1024, 3)) == 4);
  REQUIRE(AttentionSegmentBound(step(2047, 1536)) == 4);
  const ForwardPlan one = PlanForward(step(1024, 0), 4), other = PlanForward(step(1600, 2047), 4);
  REQUIRE(one.tables.size() == other.tables.size());
  REQUIRE(one.few.size() == other.few.size());
  REQUIRE(one.few_queries == other.few_queries);
  REQUIRE(one.rows.size() == other.rows.size());
  REQUIRE((one.many.empty() && other.many.empty()));
}

TEST_CASE("Slots of partial results do not overlap", "[ops][cuda][attention]") {
  std::set<int64_t> slots;
  for (int tile = 0; tile < 3; ++tile) {
    for (int head = 0; head < 2; ++head) {
      for (int segment = 0; segment < 4; ++segment) {
        for (int query = 0; query < 5; ++query) {
          slots.insert(PartialSlot(tile, head, segment, query, 2, 4, 5));
        }
      }
    }
  }
  REQUIRE(slots.size() == 3 * 2 * 4 * 5);
  REQUIRE(*slots.rbegin() == 3 * 2 * 4 * 5 - 1);
}

TEST_CASE("Launches are as large as the sizes say", "[ops][cuda][attention]") {
  const LaunchShape decode = ForwardShape(7, 4, 2, 1, 128);
  REQUIRE(decode.grid_x == 28);
  REQUIRE(decode.grid_y == 2);
  REQUIRE(decode.threads == 32);
  // Three blocks, and 1 KiB that the system takes of each, in the 228 KiB of a multiprocessor.
  REQUIRE(3 * (decode.shared_bytes + 1024) <= 228 * 1024);
  const LaunchShape prefill = ForwardShape(9, 1, 8, kManyWarps, 128);
  REQUIRE(prefill.grid_x == 9);
  REQUIRE(prefill.threads == 128);
  REQUIRE(2 * (prefill.shared_bytes + 1024) <= 228 * 1024);
  // The queries fit where the sums of earlier segments come.
  REQUIRE(EarlierFloats(64) * 32 * 4 >= kWarpQueries * 64 * 2);
  REQUIRE(2 * (QueryGradientShape(1, 1, 128).shared_bytes + 1024) <= 228 * 1024);
  REQUIRE(3 * (KeyGradientShape(1, 1, 128).shared_bytes + 1024) <= 228 * 1024);
  REQUIRE(KeyGradientShape(5, 3, 64).grid_x == 5);
  REQUIRE(KeyGradientShape(5, 3, 64).grid_y == 3);
  REQUIRE(RopeShape(3, 100).grid_x == 2);
  REQUIRE(CombineShape(9).grid_x == 3);
}

TEST_CASE("Tiles of keys know the spans that see them", "[ops][cuda][attention]") {
  constexpr int64_t kGroup = 3;
  const std::vector<AttentionSpan> spans = {{0, 130, 0, nullptr},
                                            {130, 20, 64, nullptr, 0},
                                            {150, 7, 0, nullptr},
                                            {157, 70, 129, nullptr, 0},
                                            {227, 0, 0, nullptr}};
  const BackwardPlan plan = PlanBackward(spans, kGroup);
  REQUIRE(plan.prefixes_found);
  REQUIRE(plan.rows.size() == 227);
  REQUIRE(plan.last_position == 198);
  REQUIRE(plan.tiles.size() == 7 + 1 + 1 + 4);
  REQUIRE(plan.slots == 64 * 13);
  REQUIRE(plan.spans[3].stats == 64 * 9);
  REQUIRE(plan.tiles.front().span == 3);
  REQUIRE(plan.tiles.front().first_query == 192);
  // The prompt's three tiles are seen by 3, 2 and 2 spans, a part each.
  REQUIRE(plan.key_tiles.size() == 3 + 2 + 2 + 1 + 1 + 2);
  REQUIRE(plan.parts == 7);
  REQUIRE(plan.shared_tiles.size() == 3);
  REQUIRE(plan.key_tiles.front().span == 0);  // 130 rows of its own see it
  REQUIRE(plan.key_tiles.front().first == 0);
  std::set<int32_t> parts;
  for (const KeyTile& tile : plan.key_tiles) {
    REQUIRE(tile.end == tile.begin + 1);
    if (tile.span != 0) {
      REQUIRE(tile.part == -1);
      REQUIRE(plan.viewers[static_cast<size_t>(tile.begin)] == tile.span);
      continue;
    }
    parts.insert(tile.part);
    const SharedKeyTile& shared = plan.shared_tiles[static_cast<size_t>(tile.first / kTileKeys)];
    REQUIRE(shared.first == tile.first);
    const std::vector<int32_t> expected =
        tile.first == 0 ? std::vector<int32_t>{0, 1, 3} : std::vector<int32_t>{0, 3};
    REQUIRE(shared.parts == static_cast<int32_t>(expected.size()));
    REQUIRE(plan.viewers[static_cast<size_t>(tile.begin)] ==
            expected[static_cast<size_t>(tile.part - shared.part)]);
  }
  REQUIRE(parts.size() == 7);
  REQUIRE(RowOfKey(plan.spans[1], 63) == 63);
  REQUIRE(RowOfKey(plan.spans[1], 64) == 130);
  REQUIRE(LastKeySeen(plan.spans[1], 5, true) == 69);
  REQUIRE(LastKeySeen(plan.spans[1], 5, false) == 63);
  REQUIRE(FirstPassing(64, kGroup) == 192);
  REQUIRE(FirstPassing(21, kGroup) == 32);
  REQUIRE(!PlanBackward({{0, 10, 5, nullptr, 0}}, kGroup).prefixes_found);
  REQUIRE(!PlanBackward({{0, 10, 0, nullptr}, {10, 5, 11, nullptr, 0}}, kGroup).prefixes_found);
}

TEST_CASE("Many spans that see a tile of keys share few parts, in order",
          "[ops][cuda][attention]") {
  std::vector<AttentionSpan> spans = {{0, 10, 0, nullptr}};
  for (int64_t i = 0; i < 9; ++i) spans.push_back({10 + i, 1, 10, nullptr, 0});
  const BackwardPlan plan = PlanBackward(spans, 1);
  REQUIRE(plan.parts == kMostParts);
  REQUIRE(plan.shared_tiles.size() == 1);
  std::vector<int32_t> seen(10, -1);
  for (const KeyTile& tile : plan.key_tiles) {
    if (tile.span != 0) continue;
    for (int32_t i = tile.begin; i < tile.end; ++i) {
      REQUIRE(plan.viewers[static_cast<size_t>(i)] == i);
      seen[static_cast<size_t>(i)] = tile.part;
    }
  }
  REQUIRE(seen == std::vector<int32_t>{0, 0, 1, 1, 1, 2, 2, 3, 3, 3});
  REQUIRE(AddPartsShape(7, 3, 64).grid_x == 2 * 64 * 64 / 8 / 256);
  REQUIRE(AddPartsShape(7, 3, 128).grid_z == 7);
}

TEST_CASE("Spans are compared by what they say", "[ops][cuda][attention]") {
  std::vector<int32_t> blocks = {1, 2, 3};
  const std::vector<AttentionSpan> spans = {{0, 2, 64, blocks.data()}, {2, 5, 0, nullptr}};
  SpanContents contents;
  REQUIRE(!contents.Equals({}));
  contents.Keep(spans);
  const std::vector<int32_t> copy = blocks;
  std::vector<AttentionSpan> other = spans;
  other[0].blocks = copy.data();
  REQUIRE(contents.Equals(other));
  blocks[2] = 9;  // behind the span
  REQUIRE(contents.Equals(spans));
  blocks[1] = 9;
  REQUIRE(!contents.Equals(spans));
  other[1].prefix_row = 1;
  REQUIRE(!contents.Equals(other));
  REQUIRE(!contents.Equals({spans[0]}));
}

}  // namespace tandem::attention
