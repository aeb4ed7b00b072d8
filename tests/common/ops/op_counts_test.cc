#include <catch2/catch.hpp>

#include "common/ops/forward_ops.h"
#include "common/process/threads.h"

namespace tandem {

TEST_CASE("OpCounts name the ops that ran", "[ops]") {
  OpCounts counts;
  REQUIRE(counts.Text() == "none");
  counts.Add(ForwardOp::kEmbed, 32);
  counts.Add(ForwardOp::kEmbed, 64);
  counts.Add(ForwardOp::kTokenLogProbs, 5);
  REQUIRE(counts.Text() == "embed 2 (96 rows), token_log_probs 1 (5 rows)");
  REQUIRE(counts.at(ForwardOp::kLinear).calls == 0);
}

TEST_CASE("Ops count their own calls alone", "[ops]") {
  const auto ops = CreateCpuForwardOps(DType::kFloat32, std::make_shared<ThreadPool>(1)).value();
  const auto others = CreateCpuForwardOps(DType::kFloat32, std::make_shared<ThreadPool>(1)).value();
  float values[8] = {};
  const Matrix matrix = {values, 2, 4, 4};
  ops->Add(matrix, matrix);
  REQUIRE(ops->counts().at(ForwardOp::kAdd).calls == 1);
  REQUIRE(ops->counts().at(ForwardOp::kAdd).rows == 2);
  REQUIRE(others->counts().Text() == "none");
  REQUIRE_FALSE(ops->kernel_set().empty());
}

}  // namespace tandem
