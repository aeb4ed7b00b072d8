// Groups of (emulated) GPUs on several hosts.
#include <thread>
#include <vector>

#include <catch2/catch.hpp>

#include "common/base/status.h"
#include "tests/common/comm/hosts/tcp_ranks.h"
#include "tests/common/comm/test_rank.h"
#include "tests/support/text.h"

namespace tandem {
namespace {

using testing::TcpRanks;
using testing::TestRank;
using testing::Way;

// Joins all ranks and runs `body`, in which device memory is host memory, as the emulator has it.
std::vector<absl::Status> RunDevices(Way way,
                                     TcpRanks& ranks,
                                     const std::function<absl::Status(Communicator&)>& body) {
  testing::FakeNccl nccl;
  std::vector<absl::Status> results(static_cast<size_t>(ranks.world_size()));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks.world_size(); ++rank) {
    threads.emplace_back([&, rank] {
      const GroupHosts hosts = ranks.HostsOf(rank);
      SharedMemoryGroupOptions options = ranks.OptionsOf(rank);
      options.hosts = &hosts;
      auto joined = TestRank::Join(way, options, &nccl);
      results[static_cast<size_t>(rank)] = joined.ok() ? body((*joined)->group()) : joined.status();
    });
  }
  for (std::thread& thread : threads) thread.join();
  return results;
}

}  // namespace

TEST_CASE("devices of several hosts sum in rank order through host memory, also with NCCL there") {
  const Way way = GENERATE(Way::kStaged, Way::kNccl);
  TcpRanks ranks({1, 2});
  const auto results = RunDevices(way, ranks, [](Communicator& group) -> absl::Status {
    constexpr int64_t kCount = 5000;
    std::vector<float> full(3 * kCount), mine(kCount);
    const auto value = [](int rank, int64_t i) {
      return static_cast<float>(i % 97) * 0.37f + 1e4f * rank;
    };
    for (int64_t i = 0; i < 3 * kCount; ++i) full[i] = value(group.rank(), i);
    TANDEM_RETURN_IF_ERROR(group.ReduceScatterSum(full.data(), {kCount, kCount, kCount},
                                                  mine.data(), Accumulate::kReplace));
    for (int64_t i = 0; i < kCount; ++i) {
      const int64_t at = group.rank() * kCount + i;
      const float sum = value(0, at) + value(1, at) + value(2, at);
      if (mine[i] != sum) return Internal("element {}", i);
    }
    return group.Barrier();
  });
  for (const absl::Status& status : results) {
    INFO(status.ToString());
    REQUIRE(status.ok());
  }
}

TEST_CASE("NCCL between hosts, asked for by name, is refused") {
  TcpRanks ranks({1, 1});
  testing::FakeNccl nccl;
  std::vector<absl::Status> results(2);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 2; ++rank) {
    threads.emplace_back([&, rank] {
      const GroupHosts hosts = ranks.HostsOf(rank);
      emulator::EmulatedCuda cuda(emulator::EmulatedCudaOptions{.devices = 2});
      CudaStream compute = cuda.CreateStream().value();
      DeviceGroupOptions options;
      options.group = ranks.OptionsOf(rank);
      options.group.hosts = &hosts;
      options.cuda = &cuda;
      options.device = rank;
      options.compute = compute;
      options.nccl = &nccl;
      options.way = GroupWay::kNccl;
      results[static_cast<size_t>(rank)] = JoinDeviceGroup(options).status();
      (void)cuda.DestroyStream(compute);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const absl::Status& status : results) {
    INFO(status.ToString());
    REQUIRE(absl::IsFailedPrecondition(status));
    REQUIRE(testing::Says(status, "the ranks are on several hosts"));
  }
}

}  // namespace tandem
