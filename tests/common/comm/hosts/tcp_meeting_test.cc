#include "common/comm/hosts/tcp_meeting.h"

#include <atomic>
#include <filesystem>
#include <thread>

#include <catch2/catch.hpp>
#include <poll.h>
#include <sys/socket.h>

#include "common/base/status.h"
#include "common/tcp/tcp_address.h"
#include "tests/common/comm/hosts/tcp_ranks.h"
#include "tests/common/tcp/no_free_descriptor.h"
#include "tests/common/tcp/tcp_pair.h"
#include "tests/support/temp_dir.h"
#include "tests/support/text.h"

namespace tandem {
namespace {

using testing::GroupClock;
using testing::Says;
using testing::TcpRanks;

// One rank of a group, joined in a thread with options of its own.
class Joining {
 public:
  Joining(
      TcpRanks& ranks,
      int rank,
      const std::function<void(SharedMemoryGroupOptions&, GroupHosts&)>& adjust = [](auto&,
                                                                                     auto&) {})
      : hosts_(ranks.HostsOf(rank)), options_(ranks.OptionsOf(rank)) {
    adjust(options_, hosts_);
    options_.hosts = &hosts_;
    thread_ = std::thread([this] {
      auto joined = JoinGroup(options_);
      status_ = joined.status();
      if (joined.ok()) group_ = std::move(joined).value();
    });
  }
  absl::Status Result() {
    if (thread_.joinable()) thread_.join();
    return status_;
  }
  ~Joining() { (void)Result(); }

 private:
  GroupHosts hosts_;
  SharedMemoryGroupOptions options_;
  absl::Status status_;
  std::unique_ptr<Communicator> group_;  // kept, as one that leaves is not there
  std::thread thread_;
};

auto Generation(int64_t generation) {
  return [generation](SharedMemoryGroupOptions& options, GroupHosts&) {
    options.generation = generation;
  };
}

// Makes the time of a rank's join pass once it waits.
void PassTime(GroupClock& clock) {
  while (clock.looks() < 3) std::this_thread::yield();
  clock.Advance(testing::kPatience);
}

// Knows when it was looked at, for a moment that no slow machine makes shorter.
class TimedLooks : public testing::FakeClock {
 public:
  Instant Now() override {
    looks_.push_back(RealClock().Now());
    if (looks_.size() == 5) enough_ = true;
    return FakeClock::Now();
  }
  const std::atomic<bool>& enough() const { return enough_; }
  absl::Duration Between(size_t first, size_t last) const {
    return looks_.at(last - 1) - looks_.at(first - 1);
  }

 private:
  std::vector<Instant> looks_;
  std::atomic<bool> enough_{false};
};

}  // namespace

TEST_CASE("over TCP ranks that do not join are named with their addresses") {
  TcpRanks ranks({1, 1, 1});
  const auto address = [&](int rank) { return ranks.hosts().members[rank].data_address; };
  GroupClock clock;
  const auto with_clock = [&](SharedMemoryGroupOptions& options, GroupHosts&) {
    options.clock = &clock;
  };
  Joining first(ranks, 0, with_clock);
  PassTime(clock);
  const absl::Status status = first.Result();
  REQUIRE(status.code() == absl::StatusCode::kDeadlineExceeded);
  REQUIRE(Says(status, fmt::format("rank 1 ({}), 2 ({}) of 3", address(1), address(2))));
}

TEST_CASE("over TCP a rank of an older generation is refused and the group still forms") {
  TcpRanks ranks({1, 1});
  Joining host(ranks, 0, Generation(5));
  {
    Joining old(ranks, 1, Generation(4));
    const absl::Status status = old.Result();
    INFO(status.ToString());
    REQUIRE(absl::IsAborted(status));
    REQUIRE(Says(status, "generation 4"));
    REQUIRE(Says(status, "5 has begun"));
  }
  Joining next(ranks, 1, Generation(5));
  REQUIRE(next.Result().ok());
  REQUIRE(host.Result().ok());
}

TEST_CASE("over TCP a newer generation ends an older one that is being joined") {
  TcpRanks ranks({1, 1});
  Joining newer(ranks, 1, Generation(5));
  {
    Joining old(ranks, 0, Generation(4));
    const absl::Status status = old.Result();
    INFO(status.ToString());
    REQUIRE(absl::IsAborted(status));
    REQUIRE(Says(status, "5 has begun"));
  }
  Joining again(ranks, 0, Generation(5));
  REQUIRE(again.Result().ok());
  REQUIRE(newer.Result().ok());
}

TEST_CASE("over TCP a newer generation with another secret waits for ranks of an older one") {
  TcpRanks ranks({1, 1});
  std::atomic<bool> cancelled{false};
  GroupClock newer_clock;
  const auto newer = [&](SharedMemoryGroupOptions& options, GroupHosts& hosts) {
    options.generation = 5;
    hosts.ticket = "the next controller's";
  };
  auto old =
      std::make_unique<Joining>(ranks, 0, [&](SharedMemoryGroupOptions& options, GroupHosts&) {
        options.generation = 4;
        options.cancelled = &cancelled;
      });
  Joining waits(ranks, 1, [&](SharedMemoryGroupOptions& options, GroupHosts& hosts) {
    newer(options, hosts);
    options.clock = &newer_clock;
  });
  while (newer_clock.looks() < 4) std::this_thread::yield();  // it was refused and tries again
  cancelled = true;
  REQUIRE(Says(old->Result(), "was cancelled"));  // and not ended by who lacks its secret
  old.reset();
  Joining again(ranks, 0, newer);
  REQUIRE(again.Result().ok());
  REQUIRE(waits.Result().ok());
}

TEST_CASE("over TCP ranks with other options are refused") {
  TcpRanks ranks({1, 1});
  std::atomic<bool> cancelled{false};
  Joining host(ranks, 0, [&](SharedMemoryGroupOptions& options, GroupHosts&) {
    options.cancelled = &cancelled;
  });
  const std::vector<std::function<void(SharedMemoryGroupOptions&, GroupHosts&)>> changes = {
      [](SharedMemoryGroupOptions& options, GroupHosts&) { options.staging_bytes *= 2; },
      [](SharedMemoryGroupOptions&, GroupHosts& hosts) { hosts.way = HostWay::kChain; },
      [](SharedMemoryGroupOptions&, GroupHosts& hosts) { hosts.members[1].host = "host0"; },
  };
  for (const auto& change : changes) {
    Joining other(ranks, 1, change);
    REQUIRE(absl::IsInvalidArgument(other.Result()));
    REQUIRE(Says(other.Result(), "must agree"));
  }
  cancelled = true;
  REQUIRE(absl::IsAborted(host.Result()));
}

TEST_CASE("over TCP who does not have the run's secret is refused and the group still forms") {
  TcpRanks ranks({1, 1});
  Joining host(ranks, 0);
  {
    Joining stranger(ranks, 1,
                     [](SharedMemoryGroupOptions&, GroupHosts& hosts) { hosts.ticket = "guess"; });
    REQUIRE(absl::IsPermissionDenied(stranger.Result()));
    REQUIRE(Says(stranger.Result(), "its ticket is another one"));
  }
  Joining rank(ranks, 1);
  REQUIRE(rank.Result().ok());
  REQUIRE(host.Result().ok());
}

TEST_CASE("over TCP a stranger's bytes do not end a join") {
  TcpRanks ranks({1, 1});
  const auto address = ResolveTcpAddress(ranks.hosts().members[0].data_address).value();
  // The second one knows how to begin, and leaves without a hello.
  for (const std::string& said : {std::string("GET / HTTP/1.1\r\n\r\n"), std::string("TANDEM-1")}) {
    const UniqueFd stranger(socket(AF_INET, SOCK_STREAM, 0));
    REQUIRE(connect(stranger.get(), address[0].get(), address[0].bytes) == 0);
    REQUIRE(send(stranger.get(), said.data(), said.size(), 0) == static_cast<ssize_t>(said.size()));
  }
  Joining host(ranks, 0), rank(ranks, 1);
  REQUIRE(host.Result().ok());
  REQUIRE(rank.Result().ok());
}

TEST_CASE("over TCP a join can be cancelled on either side, before and while it waits") {
  for (const int rank : {0, 1}) {
    TcpRanks ranks({1, 1});
    std::atomic<bool> cancelled{true};
    GroupClock clock;
    const auto adjust = [&](SharedMemoryGroupOptions& options, GroupHosts&) {
      options.cancelled = &cancelled;
      options.clock = &clock;
    };
    REQUIRE(absl::IsAborted(Joining(ranks, rank, adjust).Result()));
    cancelled = false;
    const int64_t looks = clock.looks();
    Joining waits(ranks, rank, adjust);
    while (clock.looks() < looks + 2) std::this_thread::yield();
    cancelled = true;
    REQUIRE(absl::IsAborted(waits.Result()));
    REQUIRE(Says(waits.Result(), "was cancelled"));
  }
}

TEST_CASE("over TCP peers that connect and say no hello hold up no rank") {
  TcpRanks ranks({1, 1});
  std::vector<std::unique_ptr<TcpConnection>> silent;
  for (int i = 0; i < 50; ++i) {
    auto connection =
        DialTcp(ranks.hosts().members[0].data_address, {}, RealClock().Now() + testing::kPatience);
    REQUIRE(connection.ok());
    silent.push_back(*std::move(connection));
  }
  const auto in_time = [](SharedMemoryGroupOptions& options, GroupHosts&) {
    options.deadline = absl::Minutes(2);
  };
  Joining host(ranks, 0, in_time);
  Joining rank(ranks, 1, in_time);
  // One after the other, they would keep rank 0 for longer than the ranks wait for each other.
  REQUIRE(rank.Result().ok());
  REQUIRE(host.Result().ok());
}

TEST_CASE("over TLS a certificate of one rank does not join as another") {
  const testing::TempDir dir;
  const testing::Authority ours(dir.path(), "ours");
  const auto of = [&](const std::string& role) {
    std::string name = role;
    for (char& c : name) c = c == '/' ? '-' : c;
    return testing::DataSecurity(ours.Issue(name, testing::NamesOf(role)));
  };
  TcpRanks ranks({1, 1}, of("trainer/0"));
  Joining host(ranks, 0);
  // What else a certificate names is of no use here: a role without rank, another project's rank.
  const std::string others[] = {"", ",URI:spiffe://tandem/demo/rollout",
                                ",URI:spiffe://tandem/demo/rollout/1",
                                ",URI:spiffe://tandem/other/trainer/1"};
  for (const std::string& other : others) {
    Joining thief(ranks, 1, [&](SharedMemoryGroupOptions&, GroupHosts& hosts) {
      hosts.security =
          testing::DataSecurity(ours.Issue("thief", testing::NamesOf("trainer/7") + other));
    });
    INFO(other);
    REQUIRE(absl::IsPermissionDenied(thief.Result()));
    REQUIRE(Says(thief.Result(), "its certificate is that of another rank"));
  }
  Joining rank(ranks, 1, [&](SharedMemoryGroupOptions&, GroupHosts& hosts) {
    hosts.security = of("trainer/1");
  });
  REQUIRE(rank.Result().ok());
  REQUIRE(host.Result().ok());
}

TEST_CASE("over TLS a certificate that is being replaced while ranks meet ends no join") {
  const testing::TempDir dir;
  const testing::Authority ours(dir.path(), "ours");
  const auto issue = [&](const std::string& name) {
    return testing::DataSecurity(ours.Issue(name, testing::NamesOf("trainer")));
  };
  TcpRanks ranks({1, 1}, issue("host"));
  const TcpSecurity dials = issue("dials"), next = issue("next");
  std::filesystem::rename(next.cert, dials.cert);  // its key is the old one's for a moment
  GroupClock clock;
  Joining host(ranks, 0);
  Joining rank(ranks, 1, [&](SharedMemoryGroupOptions& options, GroupHosts& hosts) {
    options.clock = &clock;
    hosts.security = dials;
  });
  while (clock.looks() < 4) std::this_thread::yield();  // it could not dial, and tries again
  std::filesystem::rename(next.key, dials.key);
  INFO(rank.Result());
  REQUIRE(rank.Result().ok());
  REQUIRE(host.Result().ok());
}

TEST_CASE("over TLS files that never fit together are named at the deadline") {
  const testing::TempDir dir;
  const testing::Authority ours(dir.path(), "ours");
  const auto issue = [&](const std::string& name) {
    return testing::DataSecurity(ours.Issue(name, testing::NamesOf("trainer")));
  };
  TcpRanks ranks({1, 1}, issue("host"));
  TcpSecurity dials = issue("dials");
  dials.key = issue("another").key;
  GroupClock clock;
  Joining rank(ranks, 1, [&](SharedMemoryGroupOptions& options, GroupHosts& hosts) {
    options.clock = &clock;
    hosts.security = dials;
  });
  PassTime(clock);
  REQUIRE(absl::IsDeadlineExceeded(rank.Result()));
  REQUIRE(Says(rank.Result(), "TLS cannot use the key " + dials.key));
}

TEST_CASE("over TCP a want of descriptors before a join does not end it") {
  TcpRanks ranks({1, 1});
  const auto address = ResolveTcpAddress(ranks.hosts().members[0].data_address).value();
  const UniqueFd stranger(socket(AF_INET, SOCK_STREAM, 0));
  {
    const testing::NoFreeDescriptor none;
    REQUIRE(connect(stranger.get(), address[0].get(), address[0].bytes) == 0);
    pollfd entry = {ranks.listener(0).arrived_fd(), POLLIN, 0};
    REQUIRE(poll(&entry, 1, -1) == 1);
  }
  Joining host(ranks, 0), rank(ranks, 1);
  INFO(host.Result());
  REQUIRE(host.Result().ok());
  REQUIRE(rank.Result().ok());
}

TEST_CASE("over TCP a rank that hears as many peers as it can waits for them") {
  TcpRanks ranks({1, 1});
  std::vector<std::unique_ptr<TcpConnection>> silent;
  for (int i = 0; i < 3; ++i) {
    auto connection =
        DialTcp(ranks.hosts().members[0].data_address, {}, RealClock().Now() + testing::kPatience);
    REQUIRE(connection.ok());
    silent.push_back(*std::move(connection));
  }
  TimedLooks clock;
  const GroupHosts hosts = ranks.HostsOf(0);
  SharedMemoryGroupOptions options = ranks.OptionsOf(0);
  options.clock = &clock;
  options.cancelled = &clock.enough();
  REQUIRE(absl::IsAborted(MeetOverTcp(options, hosts, /*most_comers=*/2).status()));
  // At the third look it has two peers; from then on it waits for a tenth of a second in between.
  REQUIRE(clock.Between(3, 5) > absl::Milliseconds(150));
}

TEST_CASE("over TCP impossible groups are refused") {
  TcpRanks ranks({1, 1});
  const auto refused = [&](const auto& change) {
    Joining one(ranks, 0, change);
    return absl::IsInvalidArgument(one.Result());
  };
  REQUIRE(refused([](SharedMemoryGroupOptions& options, GroupHosts&) { options.rank = 2; }));
  REQUIRE(refused([](SharedMemoryGroupOptions& options, GroupHosts&) { options.world_size = 3; }));
  REQUIRE(refused([](SharedMemoryGroupOptions&, GroupHosts& hosts) { hosts.listener = nullptr; }));
  REQUIRE(refused(
      [](SharedMemoryGroupOptions&, GroupHosts& hosts) { hosts.ticket = std::string(65, 'x'); }));
  Joining nowhere(ranks, 1, [](SharedMemoryGroupOptions&, GroupHosts& hosts) {
    hosts.members[0].data_address = "no port";
  });
  REQUIRE(absl::IsInvalidArgument(nowhere.Result()));
  REQUIRE(Says(nowhere.Result(), "rank 0: \"no port\" is not an address"));
}

}  // namespace tandem
