// Partitions against the reference implementation's, which sorts each list.
#include <algorithm>

#include <catch2/catch.hpp>

#include "controller/balance/largest_differencing.h"
#include "controller/balance/rank_assignment.h"
#include "tests/support/golden.h"
#include "tests/support/golden_tensor.h"

namespace tandem {
namespace {

using testing::GoldenCase;
using testing::GoldenDir;
using testing::GoldenFamily;
using testing::Json;

using Lists = std::vector<std::vector<int64_t>>;

std::vector<int64_t> Lengths(const GoldenCase& c) {
  return c.inputs.at("seqlen").get<std::vector<int64_t>>();
}

void CheckWorkload(const GoldenFamily&, const GoldenCase& c) {
  std::vector<int64_t> got;
  for (const int64_t tokens : Lengths(c)) got.push_back(Workload(tokens));
  REQUIRE(got == testing::ParseTensor(c.outputs.at("workload")).Ints());
}

void RequireImbalance(const Json& want, const SeqlenImbalance& got) {
  REQUIRE(want.at("global_seqlen/min").get<int64_t>() == got.min);
  REQUIRE(want.at("global_seqlen/max").get<int64_t>() == got.max);
  REQUIRE(want.at("global_seqlen/minmax_diff").get<int64_t>() == got.max - got.min);
  REQUIRE(want.at("global_seqlen/balanced_min").get<int64_t>() == got.balanced_min);
  REQUIRE(want.at("global_seqlen/balanced_max").get<int64_t>() == got.balanced_max);
  REQUIRE(want.at("global_seqlen/mean").get<double>() == got.mean);
}

void CheckPartitions(const GoldenFamily&, const GoldenCase& c) {
  const std::vector<int64_t> lengths = Lengths(c);
  const auto parts = c.options.at("k_partitions").get<int64_t>();
  const bool equal_size = c.options.at("equal_size").get<bool>();
  if (c.raises) {  // only where values cannot be divided so, which no run asks for
    REQUIRE((std::ssize(lengths) < parts || (equal_size && std::ssize(lengths) % parts != 0)));
    return;
  }
  Lists lists = LargestDifferencing(lengths, parts, equal_size);
  for (std::vector<int64_t>& list : lists) std::sort(list.begin(), list.end());
  REQUIRE(lists == c.outputs.at("partitions").get<Lists>());
  if (c.outputs.contains("unbalance")) {
    RequireImbalance(c.outputs.at("unbalance"), MeasureImbalance(lengths, lists));
  }
}

TEST_CASE("Partitions equal the golden lists", "[golden]") {
  RunGoldenFamily(
      testing::ReadGoldenFamily(GoldenDir(), "padding_balancing"),
      {{"calculate_workload", CheckWorkload}, {"get_seqlen_balanced_partitions", CheckPartitions}});
}

}  // namespace
}  // namespace tandem
