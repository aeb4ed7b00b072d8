// Partitions against the reference implementation's.
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

// False where the input had to be refused, and was.
template <typename T>
bool BalanceAnswered(const GoldenCase& c, const absl::StatusOr<T>& result) {
  INFO(result.status().ToString());
  if (c.raises) {
    REQUIRE(result.status().code() == absl::StatusCode::kInvalidArgument);
    return false;
  }
  REQUIRE(result.ok());
  return true;
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
  const auto parts = BalancedPartitions(Lengths(c), c.options.at("k_partitions").get<int64_t>(),
                                        c.options.at("equal_size").get<bool>());
  if (!BalanceAnswered(c, parts)) return;
  REQUIRE(*parts == c.outputs.at("partitions").get<Lists>());
  if (c.outputs.contains("unbalance")) {
    RequireImbalance(c.outputs.at("unbalance"), MeasureImbalance(Lengths(c), *parts));
  }
}

TEST_CASE("Partitions equal the golden lists", "[golden]") {
  RunGoldenFamily(
      testing::ReadGoldenFamily(GoldenDir(), "padding_balancing"),
      {{"calculate_workload", CheckWorkload}, {"get_seqlen_balanced_partitions", CheckPartitions}});
}

}  // namespace
}  // namespace tandem
