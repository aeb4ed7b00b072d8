#include <array>
#include <vector>

#include <catch2/catch.hpp>
#include <signal.h>

#include "common/base/status.h"
#include "tests/common/comm/comm_test_group.h"

namespace tandem {
namespace {

using testing::GroupClock;
using testing::RunThreads;
using testing::Says;
using testing::Way;

}  // namespace

TEST_CASE("a rank that never comes is named at the deadline and the group is poisoned") {
  const Way way = GENERATE(Way::kHost, Way::kStaged, Way::kNccl);
  std::array<GroupClock, 3> clocks;
  std::array<std::atomic<int64_t>, 3> looks_before{-1, -1, -1};
  // Looks once where it begins; from the next look on, the others see that it has come.
  const auto waits = [&](int rank) {
    return looks_before[rank] >= 0 && clocks[rank].looks() >= looks_before[rank] + 2;
  };
  std::atomic<int> finished{0};
  const auto results = RunThreads(
      way, 3,
      [&](Communicator& group) -> absl::Status {
        TANDEM_RETURN_IF_ERROR(group.Barrier());
        const int rank = group.rank();
        absl::Status status;
        if (rank != 1) {
          looks_before[rank] = clocks[rank].looks();
          status = group.Barrier();
          if (group.Barrier() != status) status = Internal("a later call says something else");
          ++finished;
        } else {
          while (!waits(0) || !waits(2)) std::this_thread::yield();
          clocks[0].Advance(testing::kPatience);
        }
        while (finished < 2) std::this_thread::yield();  // stays connected, as a hung rank does
        return rank == 1 ? group.Barrier() : status;
      },
      [&clocks](SharedMemoryGroupOptions& options) { options.clock = &clocks[options.rank]; });
  for (const absl::Status& status : results) {
    INFO(status.ToString());
    REQUIRE(status.code() == absl::StatusCode::kDeadlineExceeded);
    REQUIRE(Says(status, "rank 1 of 3 did not come"));
    REQUIRE(Says(status, "Barrier"));
  }
}

TEST_CASE("a rank that is killed in a collective fails the others long before the deadline") {
  for (const int victim : {0, 1}) {
    auto options = [](int rank) {
      SharedMemoryGroupOptions of_rank = testing::GroupOptions(rank, 2);
      of_rank.deadline = absl::Hours(1);  // longer than CTest lets the test run
      return of_rank;
    };
    const pid_t killed = testing::ForkRank(options(victim), [](Communicator& group) {
      if (!group.Barrier().ok()) return 1;
      kill(getpid(), SIGKILL);
      return 2;
    });
    const pid_t survivor = testing::ForkRank(options(1 - victim), [victim](Communicator& group) {
      if (!group.Barrier().ok()) return 1;
      const absl::Status status = group.Barrier();
      return absl::IsUnavailable(status) && Says(status, fmt::format("rank {} is gone", victim))
                 ? 42
                 : 3;
    });
    REQUIRE(testing::WaitForExit(survivor) == 42);
    REQUIRE(testing::WaitForExit(killed) == -SIGKILL);
  }
}

TEST_CASE("an abort ends pending and later calls on all ranks with its reason") {
  const Way way = GENERATE(Way::kHost, Way::kStaged, Way::kNccl);
  const auto results = RunThreads(way, 3, [](Communicator& group) -> absl::Status {
    TANDEM_RETURN_IF_ERROR(group.Barrier());
    if (group.rank() == 2) group.Abort("the group is formed anew");
    return group.Barrier();
  });
  for (const absl::Status& status : results) {
    REQUIRE(status.code() == absl::StatusCode::kAborted);
    REQUIRE(Says(status, "formed anew"));
  }
}

TEST_CASE("an abort from another thread ends a call that waits") {
  const Way way = GENERATE(Way::kHost, Way::kStaged, Way::kNccl);
  const auto results = RunThreads(way, 2, [](Communicator& group) -> absl::Status {
    TANDEM_RETURN_IF_ERROR(group.Barrier());
    if (group.rank() == 1) {
      while (group.Barrier().ok()) {
      }
      return group.Barrier();
    }
    std::thread other([&group] { group.Abort("stop"); });
    while (group.Barrier().ok()) {
    }
    other.join();
    return group.Barrier();
  });
  for (const absl::Status& status : results) REQUIRE(status.code() == absl::StatusCode::kAborted);
}

TEST_CASE("ranks that make different calls are told so") {
  const Way way = GENERATE(Way::kHost, Way::kStaged, Way::kNccl);
  const auto results = RunThreads(way, 2, [](Communicator& group) -> absl::Status {
    float value = 1.0f;
    return group.rank() == 0 ? group.Barrier() : group.AllReduceSum(&value, 1);
  });
  for (const absl::Status& status : results) {
    REQUIRE(status.code() == absl::StatusCode::kInternal);
  }
}

TEST_CASE("a rank that leaves after its part does not fail the others") {
  const Way way = GENERATE(Way::kHost, Way::kStaged, Way::kNccl);
  const auto results = RunThreads(way, 3, [](Communicator& group) -> absl::Status {
    std::vector<double> values(50000, group.rank());
    return group.AllReduceSum(values.data(), 50000);
  });
  for (const absl::Status& status : results) REQUIRE(status.ok());
}

TEST_CASE("no change of the machine's date ends a wait for a rank, or for a group to form") {
  for (const absl::Duration change : {absl::Hours(1), -absl::Hours(1)}) {
    std::array<GroupClock, 2> clocks;
    const auto come_late = [&clocks, change](int waiting) {
      // The other rank waits where it looks again and again.
      const int64_t looks = clocks[waiting].looks();
      while (clocks[waiting].looks() < looks + 3) std::this_thread::yield();
      clocks[waiting].SetDate(change);
      while (clocks[waiting].looks() < looks + 6) std::this_thread::yield();
    };
    const auto results = RunThreads(
        Way::kHost, 2,
        [&](Communicator& group) -> absl::Status {
          TANDEM_RETURN_IF_ERROR(group.Barrier());
          if (group.rank() == 1) come_late(0);
          return group.Barrier();
        },
        [&](SharedMemoryGroupOptions& options) {
          options.clock = &clocks[options.rank];
          if (options.rank == 1) come_late(0);
        });
    for (const absl::Status& status : results) {
      INFO(status.ToString());
      REQUIRE(status.ok());
    }
  }
}

}  // namespace tandem
