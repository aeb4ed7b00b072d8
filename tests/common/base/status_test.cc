#include "common/base/status.h"

#include <catch2/catch.hpp>

namespace {
absl::StatusOr<int> Half(int value) {
  if (value % 2 != 0) return tandem::InvalidArgument("{} is odd", value);
  return value / 2;
}
absl::StatusOr<int> Quarter(int value) {
  TANDEM_ASSIGN_OR_RETURN(const int half, Half(value));
  return Half(half);
}
}  // namespace

TEST_CASE("The status macros hand errors up and values through", "[base][status]") {
  REQUIRE(Quarter(8).value() == 2);
  REQUIRE(Quarter(6).status().message() == "3 is odd");
}

TEST_CASE("Annotate keeps code and payload and leaves OK alone", "[base][status]") {
  absl::Status status = absl::DataLossError("digest differs");
  status.SetPayload("key", absl::Cord("value"));
  const absl::Status annotated = tandem::Annotate(status, "tensor a");
  REQUIRE(annotated.code() == absl::StatusCode::kDataLoss);
  REQUIRE(annotated.message() == "tensor a: digest differs");
  REQUIRE(annotated.GetPayload("key").has_value());
  REQUIRE(tandem::Annotate(absl::OkStatus(), "x").ok());
}
