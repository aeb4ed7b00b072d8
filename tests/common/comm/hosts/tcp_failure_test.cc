#include <array>
#include <atomic>
#include <cstring>
#include <thread>
#include <vector>

#include <catch2/catch.hpp>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/base/status.h"
#include "common/comm/hosts/direct_flows.h"
#include "common/comm/hosts/tcp_meeting.h"
#include "tests/common/comm/hosts/tcp_ranks.h"
#include "tests/support/text.h"

namespace tandem {
namespace {

using testing::GroupClock;
using testing::kPatience;
using testing::Says;
using testing::TcpRanks;

// More than the sockets between two ranks hold.
constexpr int64_t kMany = 12 << 20;

TcpRanks EitherWay(const std::vector<int>& split) {
  TcpRanks ranks(split);
  ranks.hosts().way = GENERATE(HostWay::kDirect, HostWay::kChain);
  return ranks;
}

// Two processes with ranks of their own: each tells the port of the one it runs over `socket`, and
// learns the other's.
bool TellPorts(int socket, TcpRanks& ranks, int own) {
  const int port = ranks.listener(own).port();
  int other = 0;
  if (write(socket, &port, sizeof(port)) != sizeof(port) ||
      read(socket, &other, sizeof(other)) != sizeof(other)) {
    return false;
  }
  ranks.hosts().members[static_cast<size_t>(1 - own)].data_address =
      fmt::format("127.0.0.1:{}", other);
  return true;
}

}  // namespace

TEST_CASE("over TCP a rank that never comes is named at the deadline and the group is poisoned") {
  TcpRanks ranks = EitherWay({1, 2});
  std::array<GroupClock, 3> clocks;
  std::array<std::atomic<int64_t>, 3> looks_before{-1, -1, -1};
  const auto waits = [&](int rank) {
    return looks_before[rank] >= 0 && clocks[rank].looks() >= looks_before[rank] + 3;
  };
  std::atomic<int> finished{0};
  const auto results = ranks.Run(
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
          clocks[0].Advance(kPatience);
        }
        while (finished < 2) std::this_thread::yield();  // stays connected, as a hung rank does
        // The others' frames are there: that call may be complete before the news of its end comes.
        if (rank == 1) status = group.Barrier();
        return status.ok() ? group.Barrier() : status;
      },
      [&](SharedMemoryGroupOptions& options) { options.clock = &clocks[options.rank]; });
  for (const absl::Status& status : results) {
    INFO(status.ToString());
    REQUIRE(status.code() == absl::StatusCode::kDeadlineExceeded);
    REQUIRE(Says(status, "rank 1 of 3 did not come"));
    REQUIRE(Says(status, "Barrier"));
    REQUIRE(OriginOf(status) == FailureOrigin::kAnotherRank);
  }
}

TEST_CASE("over TCP a rank that stops reading and sending in a collective is named") {
  TcpRanks ranks({1, 1});
  std::atomic<bool> done{false};
  const std::vector<int64_t> counts = {kMany, kMany};
  std::thread silent([&] {
    const GroupHosts hosts = ranks.HostsOf(1);
    auto links = MeetOverTcp(ranks.OptionsOf(1), hosts);
    if (!links.ok()) return;
    CallFrame frame;
    frame.number = 1;
    frame.signature = CallSignature("ReduceScatterSum", counts);
    (void)links->data[0]->Send(&frame, sizeof(frame), Instant::InfiniteFuture());
    while (!done) std::this_thread::yield();
  });
  const GroupHosts hosts = ranks.HostsOf(0);
  GroupClock clock;
  SharedMemoryGroupOptions options = ranks.OptionsOf(0);
  options.hosts = &hosts;
  options.clock = &clock;
  const auto group = JoinGroup(options);
  std::thread time([&] {
    // Often enough to have begun with the call, which looks again and again while it waits.
    for (const int64_t looks = clock.looks(); clock.looks() < looks + 5;) {
      std::this_thread::yield();
    }
    clock.Advance(kPatience);
  });
  absl::Status status = group.status();
  std::vector<float> full(2 * kMany), mine(kMany);
  if (status.ok()) {
    status = (*group)->ReduceScatterSum(full.data(), counts, mine.data(), Accumulate::kReplace);
  }
  done = true;
  time.join();
  silent.join();
  INFO(status.ToString());
  REQUIRE(status.code() == absl::StatusCode::kDeadlineExceeded);
  REQUIRE(Says(status, "rank 1 of 2 did not come"));
  REQUIRE(Says(status, "ReduceScatterSum"));
}

TEST_CASE("over TCP a rank that is killed fails the others long before the deadline") {
  const int victim = GENERATE(0, 1);
  std::array<int, 2> ends;
  REQUIRE(socketpair(AF_UNIX, SOCK_STREAM, 0, ends.data()) == 0);
  const auto join = [](TcpRanks& ranks, int rank, const GroupHosts& hosts) {
    SharedMemoryGroupOptions options = ranks.OptionsOf(rank);
    options.hosts = &hosts;
    options.deadline = absl::Hours(1);  // longer than CTest lets the test run
    return JoinGroup(options);
  };
  // Before either listens: a process forked while others of its threads run can start none under
  // ThreadSanitizer, and joining starts some.
  const pid_t child = fork();
  // Each keeps one end alone, so that the end of either process ends the other's reading.
  close(ends[child == 0 ? 1 : 0]);
  if (child == 0) {
    TcpRanks ranks({1, 1});
    if (!TellPorts(ends[0], ranks, victim)) _exit(1);
    const GroupHosts hosts = ranks.HostsOf(victim);
    const auto group = join(ranks, victim, hosts);
    if (group.ok() && (*group)->Barrier().ok()) kill(getpid(), SIGKILL);
    _exit(1);
  }
  TcpRanks ranks({1, 1});
  REQUIRE(TellPorts(ends[1], ranks, 1 - victim));
  close(ends[1]);
  const GroupHosts hosts = ranks.HostsOf(1 - victim);
  const auto group = join(ranks, 1 - victim, hosts);
  REQUIRE(group.ok());
  REQUIRE((*group)->Barrier().ok());
  const absl::Status status = (*group)->Barrier();
  INFO(status.ToString());
  REQUIRE(absl::IsUnavailable(status));
  REQUIRE(Says(status, fmt::format("rank {} is gone", victim)));
  REQUIRE((*group)->Barrier() == status);
  REQUIRE(testing::WaitForExit(child) == -SIGKILL);
}

TEST_CASE("over TCP an abort ends pending and later calls on all ranks with its reason") {
  TcpRanks ranks = EitherWay({2, 1});
  const auto results = ranks.Run([](Communicator& group) -> absl::Status {
    TANDEM_RETURN_IF_ERROR(group.Barrier());
    if (group.rank() == 2) group.Abort("the group is formed anew");
    const absl::Status status = group.Barrier();
    return group.Barrier() == status ? status : Internal("a later call says something else");
  });
  for (const absl::Status& status : results) {
    INFO(status.ToString());
    REQUIRE(status.code() == absl::StatusCode::kAborted);
    REQUIRE(Says(status, "formed anew"));
  }
}

TEST_CASE("over TCP an abort from another thread ends a call that moves bytes") {
  TcpRanks ranks = EitherWay({1, 1});
  const auto results = ranks.Run([](Communicator& group) -> absl::Status {
    TANDEM_RETURN_IF_ERROR(group.Barrier());
    std::vector<float> full(2 * (1 << 20)), mine(1 << 20);
    const std::vector<int64_t> counts = {1 << 20, 1 << 20};
    const auto sum_until_it_fails = [&] {
      absl::Status status;
      while (status.ok()) {
        status = group.ReduceScatterSum(full.data(), counts, mine.data(), Accumulate::kReplace);
      }
      return status;
    };
    if (group.rank() == 1) return sum_until_it_fails();
    std::thread other([&group] { group.Abort("stop"); });
    const absl::Status status = sum_until_it_fails();
    other.join();
    return status;
  });
  for (const absl::Status& status : results) REQUIRE(status.code() == absl::StatusCode::kAborted);
}

TEST_CASE("over TCP ranks that make different calls are told so") {
  TcpRanks ranks = EitherWay({1, 1});
  const auto results = ranks.Run([](Communicator& group) -> absl::Status {
    float value = 1.0f;
    return group.rank() == 0 ? group.Barrier() : group.AllReduceSum(&value, 1);
  });
  for (const absl::Status& status : results) {
    INFO(status.ToString());
    REQUIRE(status.code() == absl::StatusCode::kInternal);
    REQUIRE(Says(status, "makes a different call or uses other sizes"));
  }
  // The same call with other sizes.
  const auto sizes = ranks.Run([](Communicator& group) -> absl::Status {
    std::vector<double> values(static_cast<size_t>(3 + group.rank()));
    return group.AllReduceSum(values.data(), static_cast<int64_t>(values.size()));
  });
  for (const absl::Status& status : sizes) {
    REQUIRE(status.code() == absl::StatusCode::kInternal);
  }
}

TEST_CASE("over TCP a rank that leaves after its part does not fail the others") {
  TcpRanks ranks = EitherWay({1, 2, 1});
  const auto results = ranks.Run([](Communicator& group) {
    std::vector<float> full(4 * 100'000, 1.0f), mine(100'000);
    return group.ReduceScatterSum(full.data(), std::vector<int64_t>(4, 100'000), mine.data(),
                                  Accumulate::kReplace);
  });
  for (const absl::Status& status : results) {
    INFO(status.ToString());
    REQUIRE(status.ok());
  }
}

TEST_CASE("over TCP a rank's failure reaches the others while no collective runs") {
  TcpRanks ranks({1, 1, 1});
  std::vector<std::unique_ptr<HostGroup>> groups(3);
  std::vector<std::thread> joining;
  std::vector<GroupHosts> hosts;
  for (int rank = 0; rank < 3; ++rank) hosts.push_back(ranks.HostsOf(rank));
  for (int rank = 0; rank < 3; ++rank) {
    joining.emplace_back([&, rank] {
      SharedMemoryGroupOptions options = ranks.OptionsOf(rank);
      options.hosts = &hosts[rank];
      auto group = JoinHosts(options);
      if (group.ok()) groups[rank] = std::move(group).value();
    });
  }
  for (std::thread& thread : joining) thread.join();
  for (const auto& group : groups) REQUIRE(group != nullptr);

  groups[1]->ShowProgress(3);
  testing::WaitUntil("progress", [&] { return groups[0]->ProgressOf(1) == 3; });
  REQUIRE(groups[1]->ProgressOf(1) == 3);
  REQUIRE(groups[0]->ProgressOf(2) == 0);
  REQUIRE(groups[0]->FindGone(4) == -1);
  groups[1].reset();
  testing::WaitUntil("the end of rank 1", [&] { return groups[0]->FindGone(4) == 1; });
  REQUIRE(groups[0]->FindGone(3) == -1);  // it has done its part
  REQUIRE(groups[0]->status().ok());

  REQUIRE(groups[2]->Fail(Internal("the device is lost")).code() == absl::StatusCode::kInternal);
  testing::WaitUntil("the reason", [&] { return !groups[0]->status().ok(); });
  REQUIRE(Says(groups[0]->status(), "the device is lost"));
  // The first reason stays.
  REQUIRE(Says(groups[0]->Fail(Internal("something else")), "the device is lost"));
  REQUIRE(Says(groups[0]->Barrier(), "the device is lost"));
}

}  // namespace tandem
