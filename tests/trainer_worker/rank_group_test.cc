// The group of trainers on several hosts, through the backend of a CPU.
#include "trainer_worker/rank_group.h"

#include <array>
#include <memory>
#include <thread>

#include <catch2/catch.hpp>

#include "common/backend/cpu_backend.h"
#include "common/base/status.h"
#include "common/process/threads.h"
#include "tests/common/tcp/tcp_pair.h"
#include "tests/support/text.h"

namespace tandem {
namespace {

using testing::Says;

// Two ranks on two hosts, each with a group of its own.
struct TwoHosts {
  std::array<std::unique_ptr<TcpListener>, 2> listeners{testing::ListenHere(),
                                                        testing::ListenHere()};
  std::unique_ptr<Backend> backend = MakeCpuBackend(std::make_shared<ThreadPool>(1));
  std::array<RankGroup, 2> groups{RankGroup(backend.get()), RankGroup(backend.get())};

  absl::Status Join(int rank, int64_t generation) {
    GroupOptions options;
    options.rank = rank;
    options.world_size = 2;
    options.rendezvous = "/nowhere/group.sock";  // one host's, which these are not
    options.generation = generation;
    options.deadline = testing::kPatience;
    for (int member = 0; member < 2; ++member) {
      options.hosts.members.push_back(
          {fmt::format("host{}", member), testing::AddressOf(*listeners[member])});
    }
    options.hosts.listener = listeners[rank].get();
    return groups[rank].Join(options);
  }
  absl::Status JoinBoth(int64_t generation) {
    absl::Status other;
    std::thread joins([&] { other = Join(1, generation); });
    const absl::Status mine = Join(0, generation);
    joins.join();
    return mine.ok() ? other : mine;
  }
};

}  // namespace

TEST_CASE("ranks of several hosts leave a collective and a join for a newer generation") {
  TwoHosts hosts;
  REQUIRE(hosts.JoinBoth(1).ok());
  absl::Status waited;
  std::thread waits([&] { waited = hosts.groups[0].communicator()->Barrier(); });
  hosts.groups[0].Interrupt(2, "a newer group is being formed");
  waits.join();
  REQUIRE(absl::IsAborted(waited));
  REQUIRE(Says(waited, "a newer group is being formed"));
  // Rank 1 did nothing meanwhile.
  REQUIRE(absl::IsAborted(hosts.groups[1].communicator()->Barrier()));

  std::thread alone([&] { waited = hosts.Join(0, 2); });
  hosts.groups[0].Interrupt(3, "a newer group is being formed");
  alone.join();
  REQUIRE(absl::IsAborted(waited));

  REQUIRE(hosts.JoinBoth(3).ok());
  absl::Status other;
  std::thread sums([&] {
    double value = 2;
    other = hosts.groups[1].communicator()->AllReduceSum(&value, 1);
  });
  double value = 40;
  REQUIRE(hosts.groups[0].communicator()->AllReduceSum(&value, 1).ok());
  sums.join();
  REQUIRE(other.ok());
  REQUIRE(value == 42);
}

}  // namespace tandem
