#include "common/process/files/descriptor_limit.h"

#include <string>

#include <catch2/catch.hpp>
#include <sys/resource.h>

namespace tandem {

TEST_CASE("The limit of descriptors is raised to the hard one", "[process]") {
  rlimit before{};
  REQUIRE(getrlimit(RLIMIT_NOFILE, &before) == 0);
  rlimit low = before;
  low.rlim_cur = 256;
  REQUIRE(setrlimit(RLIMIT_NOFILE, &low) == 0);
  REQUIRE(RaiseDescriptorLimit() == static_cast<int64_t>(before.rlim_max));
  rlimit after{};
  REQUIRE(getrlimit(RLIMIT_NOFILE, &after) == 0);
  REQUIRE(after.rlim_cur == before.rlim_max);
  REQUIRE(setrlimit(RLIMIT_NOFILE, &before) == 0);
}

TEST_CASE("More workers than descriptors allow are refused with both numbers", "[process]") {
  REQUIRE(CheckDescriptors(2, 1024).ok());
  REQUIRE(CheckDescriptors(1000, 2128).ok());
  const absl::Status status = CheckDescriptors(1000, 1024);
  REQUIRE(absl::IsFailedPrecondition(status));
  const std::string text(status.message());
  REQUIRE(text.find("1000 workers need 2128 open descriptors") == 0);
  REQUIRE(text.find("may have 1024: raise the hard limit") != std::string::npos);
}

}  // namespace tandem
