#include "common/jagged/padded.h"

#include <catch2/catch.hpp>

#include "common/jagged/response_rows.h"

namespace tandem {
namespace {

// Prompts of 1 and 3 tokens aligned right in 3 columns, responses of 2 and 1 aligned left in 2.
const Mask kMask{.rows = 2, .columns = 5, .values = {0, 0, 1, 1, 1, 1, 1, 1, 1, 0}};

TEST_CASE("Position ids count kept columns and stay where padding follows", "[jagged]") {
  REQUIRE(PositionIds(kMask)->values == std::vector<int64_t>{0, 0, 0, 1, 2, 0, 1, 2, 3, 3});
}

TEST_CASE("Unpadding and padding again aligns rows left", "[jagged]") {
  const Padded<int64_t> ids{.rows = 2, .columns = 5, .values = {9, 9, 1, 2, 3, 4, 5, 6, 7, 9}};
  const auto jagged = Unpad(ids, kMask);
  REQUIRE(jagged->values == std::vector<int64_t>{1, 2, 3, 4, 5, 6, 7});
  REQUIRE(jagged->offsets == std::vector<int64_t>{0, 3, 7});
  REQUIRE(*KeptPlaces(kMask) == std::vector<int64_t>{2, 3, 4, 5, 6, 7, 8});
  REQUIRE(PadRight(*jagged, -1).values == std::vector<int64_t>{1, 2, 3, 0, 4, 5, 6, 7});
  REQUIRE(PadRight(*jagged, 2).values == std::vector<int64_t>{1, 2, 4, 5});
  REQUIRE(AttentionMask(jagged->offsets, 5).values ==
          std::vector<int32_t>{1, 1, 1, 0, 0, 1, 1, 1, 1, 0});
}

TEST_CASE("Windows are counted from the mask on both sides of the prompt's columns", "[jagged]") {
  REQUIRE(*WindowsOf(kMask, 3) == std::vector<ResponseWindow>{{1, 2}, {3, 1}});
}

TEST_CASE("Batches whose shapes disagree are refused", "[jagged]") {
  const Padded<int64_t> narrow{.rows = 2, .columns = 4, .values = std::vector<int64_t>(8)};
  const Mask torn{.rows = 2, .columns = 5, .values = {1}};
  REQUIRE(Unpad(narrow, kMask).status().code() == absl::StatusCode::kInvalidArgument);
  REQUIRE(Unpad(torn, kMask).status().code() == absl::StatusCode::kInvalidArgument);
  REQUIRE(PositionIds(torn).status().code() == absl::StatusCode::kInvalidArgument);
  REQUIRE(KeptPlaces(torn).status().code() == absl::StatusCode::kInvalidArgument);
  REQUIRE(WindowsOf(torn, 3).status().code() == absl::StatusCode::kInvalidArgument);
  REQUIRE(UnpadResponses(narrow, {4, 5}).status().code() == absl::StatusCode::kInvalidArgument);
  REQUIRE(UnpadResponses(narrow, {4}).status().code() == absl::StatusCode::kInvalidArgument);
}

TEST_CASE("Windows that are not those of the rows are refused, naming the row", "[jagged]") {
  const Jagged<int> output{.values = {1, 2, 3, 4, 5}, .offsets = {0, 2, 5}};
  const auto message = [&](const std::vector<ResponseWindow>& windows) {
    const auto rows = ResponseRows(output, windows);
    REQUIRE(rows.status().code() == absl::StatusCode::kInvalidArgument);
    return std::string(rows.status().message());
  };
  REQUIRE(message({{1, 1}}) == "1 windows for 2 rows");
  REQUIRE(message({{1, 1}, {1, 1}}).find("row 1 has 3 tokens") != std::string::npos);
  REQUIRE(message({{1, 1}, {4, -1}}).find("row 1") != std::string::npos);
}

}  // namespace
}  // namespace tandem
