#include "common/comm/cuda/nccl_communicator.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>

#include "common/base/status.h"
#include "tests/common/comm/comm_test_group.h"
#include "tests/common/comm/cuda/fake_nccl.h"
#include "tests/common/comm/cuda/lonely_host.h"
#include "tests/emulator/emulated_cuda.h"
#include "tests/fakes/fake_clock.h"

namespace tandem {
namespace {

using testing::FakeNccl;
using testing::LonelyHost;
using testing::Says;
using Calls = std::vector<std::string>;

// Rank 0 of three, of which the others do on the host what it does. Work that is given to NCCL
// waits for them for ever.
struct Rank {
  Rank() {
    // The others' part of forming the group.
    for (const int other : {1, 2}) {
      peers.push_back(*nccl.Join({.id = NextId(), .rank = other, .world_size = 3}));
    }
    auto lonely = std::make_unique<LonelyHost>(0, 3);
    host = lonely.get();
    NcclOptions options;
    options.cuda = &cuda;
    options.compute = compute;
    options.nccl = &nccl;
    options.group_generation = 5;
    options.scratch_bytes = 64;
    options.single_channel = true;
    options.clock = &clock;
    auto made = NcclCommunicator::Create(std::move(lonely), options);
    REQUIRE(made.ok());
    group = *std::move(made);
  }
  ~Rank() {
    group.reset();
    (void)cuda.DestroyStream(compute);
  }
  // The id that rank 0 will make.
  static NcclId NextId() {
    NcclId next;
    std::string("group 1").copy(next.bytes.data(), 7);
    return next;
  }
  absl::Status Gather() {
    std::vector<char> all(3);
    return group->AllGather(all.data(), 1, all.data());
  }

  emulator::EmulatedCuda cuda;
  CudaStream compute = *cuda.CreateStream();
  testing::FakeClock clock;
  FakeNccl nccl;
  std::vector<NcclComm> peers;
  LonelyHost* host = nullptr;
  std::unique_ptr<NcclCommunicator> group;
};

}  // namespace

TEST_CASE("a device that does not get to a collective is named at the deadline") {
  Rank rank;
  rank.host->SetProgress(2, 1);  // rank 2's device waits in collective 1; rank 1's does not
  const Instant before = rank.clock.Now();
  const absl::Status status = rank.Gather();
  INFO(status.ToString());
  REQUIRE(status.code() == absl::StatusCode::kDeadlineExceeded);
  REQUIRE(Says(status, "rank 0 of 3 waited 10m for AllGatherV (collective 1, generation 5)"));
  REQUIRE(Says(status, "the device of rank 1 has not reached it"));
  REQUIRE(rank.clock.Now() - before >= absl::Seconds(600));
  REQUIRE(rank.clock.Now() - before < absl::Seconds(601));
  REQUIRE(rank.nccl.aborted() == 1);
  REQUIRE(rank.Gather() == status);
}

TEST_CASE("this rank's own device is named where it does not get to a collective") {
  Rank rank;
  rank.cuda.HoldEvents(true);
  rank.host->SetProgress(1, 1);
  rank.host->SetProgress(2, 1);
  REQUIRE(Says(rank.Gather(), "the device of rank 0 has not reached it"));
}

TEST_CASE("a hang that no device explains is said to be NCCL's") {
  Rank rank;
  rank.host->SetProgress(1, 1);
  rank.host->SetProgress(2, 1);
  const absl::Status status = rank.Gather();
  REQUIRE(status.code() == absl::StatusCode::kDeadlineExceeded);
  REQUIRE(Says(status, "every device has reached it"));
}

TEST_CASE("a rank that is gone while the device waits ends the collective at once") {
  Rank rank;
  rank.clock.OnSleep([&rank] { rank.host->SetGone(2); });
  const Instant before = rank.clock.Now();
  const absl::Status status = rank.Gather();
  REQUIRE(status.code() == absl::StatusCode::kUnavailable);
  REQUIRE(Says(status, "rank 2 is gone: rank 0 was waiting for it in AllGatherV"));
  REQUIRE(rank.clock.Now() - before < absl::Seconds(1));
  REQUIRE(rank.nccl.aborted() == 1);
}

TEST_CASE("an abort ends a collective that waits, and NCCL's part of the group") {
  Rank rank;
  rank.clock.OnSleep([&rank] { rank.group->Abort("the group is formed anew"); });
  const absl::Status status = rank.Gather();
  REQUIRE(status.code() == absl::StatusCode::kAborted);
  REQUIRE(Says(status, "formed anew"));
  REQUIRE(rank.nccl.aborted() == 1);
  REQUIRE(rank.group->Barrier() == status);
}

TEST_CASE("an error that NCCL meets while it works ends the group") {
  Rank rank;
  rank.clock.OnSleep([&rank] {
    rank.nccl.Break(absl::Status(absl::StatusCode::kUnavailable, "NCCL: remote process exited"));
  });
  const absl::Status status = rank.Gather();
  REQUIRE(status.code() == absl::StatusCode::kUnavailable);
  REQUIRE(Says(status, "remote process exited"));
  REQUIRE(rank.Gather() == status);
}

TEST_CASE("a call that NCCL refuses ends the group on every rank") {
  std::atomic<int> refused{0};
  FakeNccl nccl;
  std::vector<absl::Status> results(2);
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < 2; ++rank) {
    ranks.emplace_back([&, rank] {
      auto options = testing::GroupOptions(rank, 2);
      options.rendezvous += ".refused";
      auto joined = testing::TestRank::Join(testing::Way::kNccl, options, &nccl);
      REQUIRE(joined.ok());
      if (rank == 0) nccl.FailCall("Reduce", Internal("NCCL: invalid usage"));
      REQUIRE((*joined)->group().Barrier().ok());
      std::vector<float> full(2, 1.0f);
      float mine = 0;
      results[static_cast<size_t>(rank)] =
          (*joined)->group().ReduceScatterSum(full.data(), {1, 1}, &mine, Accumulate::kAdd);
    });
  }
  for (std::thread& rank : ranks) rank.join();
  for (const absl::Status& status : results) {
    REQUIRE(status.code() == absl::StatusCode::kInternal);
    REQUIRE(Says(status, "invalid usage"));
  }
  REQUIRE(nccl.aborted() == 2);
  REQUIRE(nccl.live() == 0);
}

TEST_CASE("a rank whose device is lost knows it, and is gone to the others") {
  Rank rank;
  rank.clock.OnSleep([&rank] {
    rank.cuda.LoseDevice();
    rank.nccl.FailCall("Ready", Internal("unhandled cuda error"));
  });
  REQUIRE(IsDeviceLost(rank.Gather()));
  REQUIRE(absl::IsUnavailable(rank.host->status()));
  REQUIRE(Says(rank.host->status(), "rank 0 lost its device"));
}

TEST_CASE("a group that cannot be formed says why and leaves nothing") {
  const std::string call = GENERATE("NewId", "Join");
  emulator::EmulatedCuda cuda;
  FakeNccl nccl;
  nccl.FailCall(call, Internal("NCCL: no network"));
  NcclOptions options;
  options.cuda = &cuda;
  options.nccl = &nccl;
  const auto made = NcclCommunicator::Create(std::make_unique<LonelyHost>(0, 2), options);
  REQUIRE(made.status().code() == absl::StatusCode::kInternal);
  REQUIRE(Says(made.status(), "no network"));
  REQUIRE(cuda.used_bytes() == 0);
  REQUIRE(nccl.live() == 0);
}

TEST_CASE("a rank that never joins NCCL ends the start at the deadline") {
  emulator::EmulatedCuda cuda;
  testing::FakeClock clock;
  FakeNccl nccl;
  NcclOptions options;
  options.cuda = &cuda;
  options.nccl = &nccl;
  options.clock = &clock;
  const auto made = NcclCommunicator::Create(std::make_unique<LonelyHost>(0, 2), options);
  REQUIRE(made.status().code() == absl::StatusCode::kDeadlineExceeded);
  REQUIRE(Says(made.status(), "a rank has not joined"));
  REQUIRE(nccl.aborted() == 1);
}

TEST_CASE("a group whose work is done ends without an abort and gives its memory back") {
  Rank rank;
  REQUIRE(rank.nccl.single_channel());
  REQUIRE(rank.cuda.used_bytes() == 64);
  rank.group.reset();
  REQUIRE(rank.cuda.used_bytes() == 0);
  REQUIRE(rank.nccl.aborted() == 0);
  const Calls calls = rank.nccl.calls();
  REQUIRE(calls[calls.size() - 2] == "Finalize");
  REQUIRE(calls.back() == "Destroy");
}

TEST_CASE("equal pieces take NCCL's own collectives, unequal and large ones groups of calls") {
  FakeNccl nccl;
  std::vector<std::thread> ranks;
  std::vector<absl::Status> results(2);
  for (int rank = 0; rank < 2; ++rank) {
    ranks.emplace_back([&, rank] {
      auto options = testing::GroupOptions(rank, 2);
      options.rendezvous += ".calls";
      auto joined = testing::TestRank::Join(testing::Way::kNccl, options, &nccl);
      REQUIRE(joined.ok());
      Communicator& group = (*joined)->group();
      std::vector<float> full(8192, 1.0f), mine(4096);
      const auto sum = [&](const std::vector<int64_t>& counts) {
        return group.ReduceScatterSum(full.data(), counts, mine.data(), Accumulate::kAdd);
      };
      absl::Status status = sum({100, 100});
      if (status.ok()) status = sum({100, 99});
      if (status.ok()) status = sum({4096, 4096});  // two of the scratch's 2048 floats
      if (status.ok()) status = group.AllGatherV(mine.data(), {8, 12}, full.data());
      results[static_cast<size_t>(rank)] = status;
    });
  }
  for (std::thread& rank : ranks) rank.join();
  for (const absl::Status& status : results) REQUIRE(status.ok());
  const Calls calls = nccl.calls();
  const auto count = [&](const char* name) { return std::count(calls.begin(), calls.end(), name); };
  REQUIRE(count("Reduce") == 2 * (1 + 1 + 2));
  REQUIRE(count("sum for all") == 2);
  REQUIRE(count("sum for one") == 2 * (2 + 2 * 2));
  REQUIRE(count("Transfer") == 2);
  REQUIRE(count("AllGather") == 0);
}

}  // namespace tandem
