#include "common/base/build_info.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

const BuildInfo kBuild = {.version = "0.1.0",
                          .commit = "0123456789ab",
                          .sources = "fedcba9876543210",
                          .flags = "Release, GNU 12.2.0, -O2",
                          .cuda = "off"};

}  // namespace

TEST_CASE("A build is told with program, version, commit, sources, flags and CUDA", "[build]") {
  REQUIRE(BuildText(kBuild, "tandem-trainer") ==
          "tandem-trainer 0.1.0, commit 0123456789ab, sources fedcba9876543210, Release, "
          "GNU 12.2.0, -O2, CUDA off");
  REQUIRE(BuildText(kBuild).rfind("tandem 0.1.0, ", 0) == 0);
}

TEST_CASE("Builds are the same by version, sources and flags, whatever the commit", "[build]") {
  BuildInfo other = kBuild;
  other.commit = "unknown";
  other.cuda = "80-real 90-real 100";
  REQUIRE(BuildId(other) == BuildId(kBuild));
  for (std::string_view BuildInfo::*part :
       {&BuildInfo::version, &BuildInfo::sources, &BuildInfo::flags}) {
    other = kBuild;
    other.*part = "another";
    REQUIRE(BuildId(other) != BuildId(kBuild));
  }
}

}  // namespace tandem
