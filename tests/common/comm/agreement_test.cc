#include <thread>

#include <catch2/catch.hpp>

#include "common/base/status.h"
#include "common/comm/communicator.h"
#include "common/comm/shared_memory_communicator.h"
#include "tests/support/patience.h"
#include "tests/support/temp_dir.h"

namespace tandem {

TEST_CASE("Of a failure the rank that had it tells, the others that it was another's") {
  const testing::TempDir dir;
  const auto agree = [&](int rank, const absl::Status& mine) {
    SharedMemoryGroupOptions group;
    group.rank = rank;
    group.world_size = 2;
    group.rendezvous = (dir.path() / "group.sock").string();
    group.generation = 1;
    group.deadline = testing::kPatience;
    const auto communicator = JoinSharedMemoryGroup(group);
    if (!communicator.ok()) return communicator.status();
    return Agree(**communicator, mine, "writing").status();
  };
  absl::Status fine, failed;
  {
    std::jthread first([&] { fine = agree(0, absl::OkStatus()); });
    std::jthread second([&] { failed = agree(1, absl::ResourceExhaustedError("disk full")); });
  }
  REQUIRE(absl::IsResourceExhausted(failed));
  REQUIRE(OriginOf(failed) == FailureOrigin::kHere);
  REQUIRE(absl::IsAborted(fine));
  REQUIRE(OriginOf(fine) == FailureOrigin::kAnotherRank);
}

}  // namespace tandem
