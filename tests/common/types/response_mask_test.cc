#include "common/types/response_mask.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

TEST_CASE("a response counts up to and with the first token that ends it", "[losses]") {
  const std::vector<int32_t> response = {4, 9, 7, 9, 7};
  using Mask = std::vector<int64_t>;
  REQUIRE(ResponseMask(response, std::vector<int32_t>{7}) == Mask{1, 1, 1, 0, 0});
  REQUIRE(ResponseMask(response, std::vector<int32_t>{7, 9}) == Mask{1, 1, 0, 0, 0});
  REQUIRE(ResponseMask(response, std::vector<int32_t>{4}) == Mask{1, 0, 0, 0, 0});
  REQUIRE(ResponseMask(response, std::vector<int32_t>{1}) == Mask{1, 1, 1, 1, 1});
  REQUIRE(ResponseMask({}, std::vector<int32_t>{1}).empty());
}

}  // namespace
}  // namespace tandem
