#include <catch2/catch.hpp>

#include "controller/assembly/run_plan.h"
#include "tests/support/temp_dir.h"

namespace tandem {

TEST_CASE("Offloaded files are held against the free disk, for all pairs", "[plan]") {
  MemoryPlan plan;
  plan.phases = {{"train",
                  {{true, "master", Location::kFile, 100},
                   {true, "optimizer", Location::kFile, 200},
                   {true, "weights", Location::kDevice, 1000}}},
                 {"wake", {{true, "master", Location::kFile, 100}}}};
  REQUIRE(OffloadedBytes(plan) == 300);
  REQUIRE(CheckOffloadSpace(plan, 2, "/run", 600).ok());
  const absl::Status full = CheckOffloadSpace(plan, 2, "/run", 599);
  REQUIRE(absl::IsResourceExhausted(full));
  for (const char* part : {"600 bytes", "599 bytes", "/run", "cluster.run_dir"}) {
    REQUIRE(std::string(full.message()).find(part) != std::string::npos);
  }
  REQUIRE(CheckOffloadSpace({}, 2, "/run", 0).ok());
}

TEST_CASE("Free disk is what the system says, and no limit where it says nothing", "[plan]") {
  const testing::TempDir dir;
  REQUIRE(FreeDiskBytes(dir.path().string()) > 0);
  REQUIRE(FreeDiskBytes("/no/such/place") == std::numeric_limits<int64_t>::max());
}

}  // namespace tandem
