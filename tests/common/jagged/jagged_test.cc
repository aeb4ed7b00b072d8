#include "common/jagged/jagged.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

TEST_CASE("A jagged batch gives its rows and parts of them", "[jagged]") {
  Jagged<int> jagged{.width = 2};
  jagged.Append(std::vector<int>{1, 2, 3, 4});
  jagged.Append(std::vector<int>{});
  jagged.Append(std::vector<int>{5, 6});
  REQUIRE(jagged.offsets == std::vector<int64_t>{0, 2, 2, 3});
  REQUIRE(jagged.rows() == 3);
  REQUIRE(jagged.tokens() == 3);
  REQUIRE(jagged.length(1) == 0);
  REQUIRE(jagged.Row(2).front() == 5);
  REQUIRE(jagged.Slice(0, 1, 2).front() == 3);
  REQUIRE(jagged.Slice(0, 1, 2).size() == 2);
  REQUIRE(CheckJagged(jagged).ok());
}

TEST_CASE("Offsets are running sums of lengths", "[jagged]") {
  REQUIRE(OffsetsOf({3, 0, 2}) == std::vector<int64_t>{0, 3, 3, 5});
  REQUIRE(OffsetsOf({}) == std::vector<int64_t>{0});
}

TEST_CASE("A jagged batch whose offsets and values disagree is refused", "[jagged]") {
  const auto refused = [](std::vector<int64_t> offsets, int64_t width) {
    const Jagged<int> jagged{.values = {1, 2, 3, 4}, .offsets = std::move(offsets), .width = width};
    return CheckJagged(jagged).code() == absl::StatusCode::kInvalidArgument;
  };
  REQUIRE_FALSE(refused({0, 1, 4}, 1));
  REQUIRE_FALSE(refused({0, 2}, 2));
  REQUIRE(refused({}, 1));
  REQUIRE(refused({1, 4}, 1));
  REQUIRE(refused({0, 5, 4}, 1));
  REQUIRE(refused({0, 3}, 1));
  REQUIRE(refused({0, 4}, 2));
  REQUIRE(refused({0, 4}, 0));
}

}  // namespace
}  // namespace tandem
