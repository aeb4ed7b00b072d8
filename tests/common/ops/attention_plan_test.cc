#include "common/ops/cpu/attention_plan.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {
const AttentionShape kPlannedShape = {9, 3, 64};

AttentionSpan DecodeSpan(int64_t row, int64_t position, const std::vector<int32_t>& blocks) {
  return {row, 1, position, blocks.data()};
}
}  // namespace

TEST_CASE("Samples of a prompt share the blocks that they have filled", "[ops][attention]") {
  const std::vector<int32_t> a = {7, 8, 1}, b = {7, 8, 2}, other = {3, 8, 4}, c = {7, 8, 5};
  AttentionPlan plan;
  // c is still inside its second block: it sees only a part of it.
  plan.Plan({DecodeSpan(0, 130, a), DecodeSpan(1, 130, other), DecodeSpan(2, 140, b),
             DecodeSpan(3, 90, c)},
            kPlannedShape, 1);
  REQUIRE(plan.groups() == 2);
  const AttentionTask alone = plan.Task(0, 2), together = plan.Task(1, 0);
  REQUIRE(alone.count == 1);
  REQUIRE(alone.kv_head == 2);
  REQUIRE(alone.rows[0].first_row == 1);
  REQUIRE(alone.shared_tiles == 3);
  REQUIRE(together.count == 3);
  REQUIRE(together.shared_tiles == 1);
  REQUIRE(together.rows[0].first_row == 0);
  REQUIRE(together.rows[1].first_row == 2);
  REQUIRE(together.rows[2].first_row == 3);
  REQUIRE(together.rows[2].blocks == c.data());
}

TEST_CASE("A block counts as shared from its last position on", "[ops][attention]") {
  const std::vector<int32_t> a = {7, 1}, b = {7, 2};
  const AttentionShape many_heads = {8, 8, 64};
  AttentionPlan plan;
  plan.Plan({DecodeSpan(0, 62, a), DecodeSpan(1, 64, b)}, many_heads, 1);
  REQUIRE(plan.groups() == 2);
  plan.Plan({DecodeSpan(0, 63, a), DecodeSpan(1, 64, b)}, many_heads, 1);
  REQUIRE(plan.groups() == 1);
  REQUIRE(plan.Task(0, 0).shared_tiles == 1);
}

TEST_CASE("Every thread has decoding to do before blocks are shared", "[ops][attention]") {
  const std::vector<int32_t> blocks = {7};
  std::vector<AttentionSpan> spans;
  for (int64_t row = 0; row < 32; ++row) spans.push_back(DecodeSpan(row, 63, blocks));
  AttentionPlan plan;
  plan.Plan(spans, kPlannedShape, 1);
  REQUIRE(plan.groups() == 2);  // 16 rows of three heads are 48 queries
  plan.Plan(spans, kPlannedShape, 8);
  REQUIRE(plan.groups() == 11);
  int64_t rows = 0;
  for (int64_t group = 0; group < plan.groups(); ++group) rows += plan.Task(group, 0).count;
  REQUIRE(rows == 32);
}

TEST_CASE("Long spans are cut into runs that see the blocks up to their end", "[ops][attention]") {
  const std::vector<int32_t> blocks = {4, 5};
  AttentionPlan plan;
  plan.Plan({{10, 40, 50, blocks.data()}}, kPlannedShape, 2);
  REQUIRE(plan.groups() == 3);
  REQUIRE(plan.Task(0, 0).rows[0].rows == 16);
  REQUIRE(plan.Task(0, 0).shared_tiles == 2);
  REQUIRE(plan.Task(2, 0).rows[0].first_row == 42);
  REQUIRE(plan.Task(2, 0).rows[0].rows == 8);
  REQUIRE(plan.Task(2, 0).rows[0].first_position == 82);
}

}  // namespace tandem
