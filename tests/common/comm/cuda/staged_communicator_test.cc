#include "common/comm/cuda/staged_communicator.h"

#include <algorithm>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include "common/base/status.h"
#include "common/comm/communicator.h"
#include "tests/common/comm/comm_test_group.h"
#include "tests/emulator/emulated_cuda.h"
#include "tests/fakes/fake_clock.h"
#include "tests/support/text.h"

namespace tandem {
namespace {

using testing::CountOf;
using testing::Says;

StagedOptions OptionsFor(CudaApi* cuda, Clock* clock) {
  StagedOptions options;
  options.cuda = cuda;
  options.staging_bytes = 1024;
  options.clock = clock;
  return options;
}

}  // namespace

TEST_CASE("a staged group gives back its pinned memory and events") {
  emulator::EmulatedCuda cuda;
  {
    auto staged = StagedCommunicator::Create(std::make_unique<SoloCommunicator>(),
                                             OptionsFor(&cuda, &RealClock()));
    REQUIRE(staged.ok());
    float value = 3;
    float sum = 4;
    REQUIRE((*staged)->ReduceScatterSum(&value, {1}, &sum, Accumulate::kAdd).ok());
    REQUIRE(sum == 7);
  }
  REQUIRE(CountOf(cuda.calls(), "AllocateHost") == 4);
  REQUIRE(CountOf(cuda.calls(), "FreeHost") == 4);
  REQUIRE(CountOf(cuda.calls(), "CreateEvent") == CountOf(cuda.calls(), "DestroyEvent"));
}

TEST_CASE("memory that cannot be pinned is the reason that a staged group is not formed") {
  emulator::EmulatedCuda cuda;
  cuda.FailCall("AllocateHost",
                absl::Status(absl::StatusCode::kResourceExhausted, "no pinned memory"), 2);
  const auto staged = StagedCommunicator::Create(std::make_unique<SoloCommunicator>(),
                                                 OptionsFor(&cuda, &RealClock()));
  REQUIRE(staged.status().code() == absl::StatusCode::kResourceExhausted);
  REQUIRE(CountOf(cuda.calls(), "FreeHost") == 2);
}

TEST_CASE("a device that hangs ends a staged collective at the deadline") {
  emulator::EmulatedCuda cuda;
  testing::FakeClock clock;
  auto staged =
      StagedCommunicator::Create(std::make_unique<SoloCommunicator>(), OptionsFor(&cuda, &clock));
  REQUIRE(staged.ok());
  cuda.HoldEvents(true);
  char data = 1;
  const Instant before = clock.Now();
  const absl::Status status = (*staged)->Broadcast(&data, 1, 0);
  REQUIRE(status.code() == absl::StatusCode::kDeadlineExceeded);
  REQUIRE(Says(status, "its own device"));
  REQUIRE(clock.Now() - before >= absl::Seconds(600));
  REQUIRE((*staged)->Barrier().code() == absl::StatusCode::kAborted);
}

TEST_CASE("a copy that fails on one rank ends the staged group on all") {
  std::vector<absl::Status> results(2);
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < 2; ++rank) {
    ranks.emplace_back([&results, rank] {
      auto options = testing::GroupOptions(rank, 2);
      options.rendezvous += ".copy";
      auto joined = testing::TestRank::Join(testing::Way::kStaged, options, nullptr);
      REQUIRE(joined.ok());
      if (rank == 1) (*joined)->cuda().FailCall("Copy", Internal("the device is lost"), 3);
      std::vector<float> full(40000, 1.0f), mine(20000);
      results[static_cast<size_t>(rank)] = (*joined)->group().ReduceScatterSum(
          full.data(), {20000, 20000}, mine.data(), Accumulate::kReplace);
    });
  }
  for (std::thread& rank : ranks) rank.join();
  REQUIRE(results[1].code() == absl::StatusCode::kInternal);
  REQUIRE(results[0].code() == absl::StatusCode::kAborted);
  REQUIRE(Says(results[0], "rank 1: the device is lost"));
}

TEST_CASE("staging that no rank could use is refused") {
  emulator::EmulatedCuda cuda;
  StagedOptions options = OptionsFor(&cuda, &RealClock());
  options.staging_bytes = 128;
  REQUIRE(
      StagedCommunicator::Create(std::make_unique<SoloCommunicator>(), options).status().code() ==
      absl::StatusCode::kInvalidArgument);
}

}  // namespace tandem
