#include <catch2/catch.hpp>

#include "controller/assembly/run_plan.h"

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
  REQUIRE(CheckOffloadSpace(plan, 2, "/run", std::nullopt).ok());  // it cannot be asked
}

}  // namespace tandem
