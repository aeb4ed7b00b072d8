// The cuBLASLt of the toolkit that built this, as far as this machine can run it.
#include <string>

#include <catch2/catch.hpp>

#include "common/ops/cuda/linear/cublaslt_api.h"

namespace tandem {
namespace {

TEST_CASE("cuBLASLt has all functions, and opens where there is a device", "[ops][cuda][lt]") {
  const absl::StatusOr<std::unique_ptr<LtApi>> lt = OpenLt();
  if (lt.ok()) {
    REQUIRE((*lt)->version().substr(0, 3) == "13.");
    return;
  }
  INFO(lt.status());
  REQUIRE(absl::IsFailedPrecondition(lt.status()));
  // Of a function that is missing the message would speak first.
  const std::string reason(lt.status().message());
  const bool not_found = reason.find("libcublasLt.so.13 was not found") == 0;
  const bool no_device = reason.find("finds no device") != std::string::npos;
  REQUIRE((not_found || no_device));
}

}  // namespace
}  // namespace tandem
