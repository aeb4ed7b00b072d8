#include "common/comm/cuda/device_group.h"

#include <algorithm>
#include <thread>
#include <vector>

#include <catch2/catch.hpp>
#include <signal.h>

#include "common/base/status.h"
#include "tests/common/comm/comm_test_group.h"

namespace tandem {
namespace {

using testing::FakeNccl;
using testing::Says;
using testing::Way;

// How two ranks come to a group: which device, with NCCL or without, and what they ask for.
struct Comer {
  int device = 0;
  bool has_nccl = true;
  GroupWay way = GroupWay::kAuto;
  bool single_channel = false;
};

std::vector<absl::Status> Form(const std::vector<Comer>& comers, FakeNccl* nccl) {
  std::vector<absl::Status> results(comers.size());
  std::vector<std::thread> ranks;
  for (size_t rank = 0; rank < comers.size(); ++rank) {
    ranks.emplace_back([&, rank] {
      emulator::EmulatedCuda cuda({.devices = 2});
      DeviceGroupOptions options;
      options.group =
          testing::GroupOptions(static_cast<int>(rank), static_cast<int>(comers.size()));
      options.group.rendezvous += ".form";
      options.cuda = &cuda;
      options.device = comers[rank].device;
      options.nccl = comers[rank].has_nccl ? nccl : nullptr;
      options.way = comers[rank].way;
      options.group.single_channel = comers[rank].single_channel;
      auto group = JoinDeviceGroup(options);
      results[rank] = group.status();
      if (!group.ok()) return;
      std::vector<int> all(comers.size(), -1);
      const int mine = static_cast<int>(rank);
      results[rank] = (*group)->AllGather(&mine, sizeof(mine), all.data());
      for (size_t other = 0; other < all.size(); ++other) {
        if (all[other] != static_cast<int>(other)) results[rank] = Internal("gather");
      }
    });
  }
  for (std::thread& rank : ranks) rank.join();
  return results;
}

bool Used(const FakeNccl& nccl) {
  const std::vector<std::string> calls = nccl.calls();
  return std::find(calls.begin(), calls.end(), "AllGather") != calls.end();
}

void RequireOk(const std::vector<absl::Status>& results) {
  for (const absl::Status& status : results) {
    INFO(status.ToString());
    REQUIRE(status.ok());
  }
}

}  // namespace

TEST_CASE("NCCL is asked for one channel where the group is") {
  for (const bool single : {false, true}) {
    FakeNccl nccl;
    RequireOk(Form(
        {{.device = 0, .single_channel = single}, {.device = 1, .single_channel = single}}, &nccl));
    REQUIRE(nccl.single_channel() == single);
  }
}

TEST_CASE("ranks with a GPU each and NCCL go through NCCL") {
  FakeNccl nccl;
  RequireOk(Form({{.device = 0}, {.device = 1}}, &nccl));
  REQUIRE(Used(nccl));
  REQUIRE(nccl.live() == 0);
}

TEST_CASE("ranks that share a GPU, lack NCCL or ask for it go through pinned memory") {
  FakeNccl nccl;
  RequireOk(Form({{.device = 1}, {.device = 1}}, &nccl));
  RequireOk(Form({{.device = 0}, {.device = 1, .has_nccl = false}}, &nccl));
  RequireOk(Form({{.device = 0, .way = GroupWay::kStaged}, {.device = 1}}, &nccl));
  REQUIRE(nccl.calls().empty());
}

TEST_CASE("NCCL that was asked for and cannot be is an error on every rank") {
  FakeNccl nccl;
  for (const absl::Status& status : Form({{.way = GroupWay::kNccl}, {}}, &nccl)) {
    REQUIRE(status.code() == absl::StatusCode::kFailedPrecondition);
    REQUIRE(Says(status, "ranks 0 and 1 share the GPU"));
  }
}

TEST_CASE("a device that cannot be described fails the group on every rank") {
  FakeNccl nccl;
  for (const absl::Status& status : Form({{.device = 0}, {.device = 7}}, &nccl)) {
    REQUIRE(status.code() == absl::StatusCode::kFailedPrecondition);
    REQUIRE(Says(status, "no emulated device 7"));
  }
}

TEST_CASE("a rank that does not come to a device's collective is named with it") {
  const Way way = GENERATE(Way::kStaged, Way::kNccl);
  testing::FakeClock clock;
  std::atomic<bool> finished{false};
  const auto results = testing::RunThreads(
      way, 2,
      [&](Communicator& group) -> absl::Status {
        TANDEM_RETURN_IF_ERROR(group.Barrier());
        std::vector<float> values(8, 1.0f);
        while (group.rank() == 1 && !finished) clock.Advance(testing::kPatience);
        const absl::Status status =
            group.ReduceScatterSum(values.data(), {4, 4}, values.data() + 4, Accumulate::kReplace);
        finished = true;
        return status;
      },
      [&clock](SharedMemoryGroupOptions& options) { options.clock = &clock; });
  for (const absl::Status& status : results) {
    INFO(status.ToString());
    REQUIRE(status.code() == absl::StatusCode::kDeadlineExceeded);
    REQUIRE(Says(status, "rank 1 of 2 did not come"));
  }
}

TEST_CASE("a process that dies is missed by those that stage long before the deadline") {
  const auto options = [](int rank) {
    SharedMemoryGroupOptions of_rank = testing::GroupOptions(rank, 2);
    of_rank.deadline = absl::Hours(1);  // longer than CTest lets the test run
    return of_rank;
  };
  const pid_t killed = testing::ForkRank(
      options(1),
      [](Communicator& group) {
        if (!group.Barrier().ok()) return 1;
        kill(getpid(), SIGKILL);
        return 2;
      },
      Way::kStaged);
  const pid_t survivor = testing::ForkRank(
      options(0),
      [](Communicator& group) {
        if (!group.Barrier().ok()) return 1;
        std::vector<char> all(200);
        const absl::Status status = group.AllGather(all.data(), 100, all.data());
        return absl::IsUnavailable(status) && Says(status, "rank 1 is gone") ? 42 : 3;
      },
      Way::kStaged);
  REQUIRE(testing::WaitForExit(survivor) == 42);
  REQUIRE(testing::WaitForExit(killed) == -SIGKILL);
}

TEST_CASE("ranks that make different calls on a device are told so") {
  const Way way = GENERATE(Way::kStaged, Way::kNccl);
  const auto results = testing::RunThreads(way, 2, [](Communicator& group) -> absl::Status {
    char data[2] = {1, 2};
    return group.Broadcast(data, group.rank() == 0 ? 1 : 2, 0);
  });
  for (const absl::Status& status : results) {
    REQUIRE(status.code() == absl::StatusCode::kInternal);
  }
}

TEST_CASE("a collective waits for what its device was given to compute, up to its mark") {
  const Way way = GENERATE(Way::kStaged, Way::kNccl);
  FakeNccl nccl;
  const auto run = [&](int rank) -> absl::Status {
    auto options = testing::GroupOptions(rank, 2);
    options.rendezvous += ".order";
    TANDEM_ASSIGN_OR_RETURN(const auto joined, testing::TestRank::Join(way, options, &nccl));
    emulator::EmulatedCuda& cuda = joined->cuda();
    TANDEM_ASSIGN_OR_RETURN(std::byte* const all, cuda.Malloc(2));
    std::byte* const mine = all + rank;
    const auto computed = static_cast<unsigned char>(5 + rank);
    // The emulated stream does this only once somebody waits for it.
    TANDEM_RETURN_IF_ERROR(cuda.Fill(mine, computed, 1, joined->compute()));
    joined->group().StartAt(joined->group().Mark());
    TANDEM_RETURN_IF_ERROR(cuda.Fill(mine, 9, 1, joined->compute()));
    TANDEM_RETURN_IF_ERROR(joined->group().AllGather(mine, 1, all));
    const bool first = all[0] == std::byte{5} && all[1] == std::byte{6};
    if (!first) return Internal("rank {} gathered {} and {}", rank, int(all[0]), int(all[1]));
    joined->group().StartAt(0);
    TANDEM_RETURN_IF_ERROR(joined->group().AllGather(mine, 1, all));
    const bool second = all[0] == std::byte{9} && all[1] == std::byte{9};
    return second ? cuda.Free(all) : Internal("rank {} did not wait for the rest", rank);
  };
  std::vector<absl::Status> results(2);
  std::thread other([&] { results[1] = run(1); });
  results[0] = run(0);
  other.join();
  RequireOk(results);
}

TEST_CASE("values in host memory go past the device in every group") {
  const Way way = GENERATE(Way::kHost, Way::kStaged, Way::kNccl);
  RequireOk(testing::RunThreads(way, 2, [](Communicator& group) -> absl::Status {
    const int64_t mine = 100 + group.rank();
    std::vector<int64_t> all(2);
    TANDEM_RETURN_IF_ERROR(group.host().AllGather(&mine, sizeof(mine), all.data()));
    return all[0] == 100 && all[1] == 101 ? absl::OkStatus() : Internal("{}", all[1]);
  }));
}

}  // namespace tandem
