// Collectives of two ranks over TCP, plain and TLS, beside a stream through one connection, which
// is what iperf3 measures, in the same run. The ranks are threads of this process, each in the
// network of its host.
#include "tests/bench/tcp_comm_bench.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <thread>
#include <vector>

#include <absl/strings/str_cat.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/socket.h>

#include "common/comm/group_hosts.h"
#include "common/comm/hosts/join_group.h"
#include "common/tcp/tcp_address.h"
#include "common/tcp/tcp_listener.h"
#include "tests/support/certificates.h"
#include "tests/support/temp_dir.h"

namespace tandem {
namespace {

// The sides take turns, so that others' load on the machine affects all of them.
constexpr int kTurns = 8;
constexpr int kRepeats = 4;  // of a group's collectives in a turn; the first finds cold memory
constexpr int64_t kWriteBytes = 1 << 20;

void Require(const absl::Status& status) {
  if (status.ok()) return;
  fmt::print(stderr, "{}\n", status.ToString());
  std::exit(1);
}

double SecondsOf(const std::function<void()>& body) {
  const auto start = std::chrono::steady_clock::now();
  body();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

using Hosts = std::array<BenchHost, 2>;

// This thread's sockets are in that network from now on, and those of threads that it starts.
void Enter(const std::string& network) {
  if (network.empty()) return;
  const std::string path = "/run/netns/" + network;
  const UniqueFd entered(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (entered.valid() && setns(entered.get(), CLONE_NEWNET) == 0) return;
  fmt::print(stderr, "{}: {}\n", path, std::strerror(errno));
  std::exit(1);
}

// On a thread of each host, which runs `body` with its number.
void Both(const Hosts& hosts, const std::function<void(int)>& body) {
  std::vector<std::thread> sides;
  for (int side = 0; side < 2; ++side) {
    sides.emplace_back([&, side] {
      Enter(hosts[static_cast<size_t>(side)].network);
      body(side);
    });
  }
  for (std::thread& side : sides) side.join();
}

// One of each host.
std::array<std::unique_ptr<TcpListener>, 2> Listen(const Hosts& hosts,
                                                   const TcpSecurity& security) {
  std::array<std::unique_ptr<TcpListener>, 2> listeners;
  Both(hosts, [&](int side) {
    const auto at = static_cast<size_t>(side);
    auto listener = TcpListener::Listen(hosts[at].address + ":0", security);
    Require(listener.status());
    listeners[at] = std::move(listener).value();
  });
  return listeners;
}

std::string AddressOf(const BenchHost& host, const TcpListener& listener) {
  return fmt::format("{}:{}", host.address, listener.port());
}

// Bytes a second through blocking calls of the system in one direction, without any code of ours.
double RawStream(const Hosts& hosts, const std::vector<char>& from, std::vector<char>& to) {
  UniqueFd listener;
  ResolvedAddress address = ResolveTcpAddress(hosts[1].address + ":0").value()[0];
  Both(hosts, [&](int side) {
    if (side == 0) return;
    listener.Reset(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    auto* const name = reinterpret_cast<sockaddr*>(&address.storage);
    if (bind(listener.get(), name, address.bytes) != 0 || listen(listener.get(), 1) != 0 ||
        getsockname(listener.get(), name, &address.bytes) != 0) {
      std::exit(1);
    }
  });
  double seconds = 0;
  Both(hosts, [&](int side) {
    if (side == 0) {
      const UniqueFd sends(socket(AF_INET, SOCK_STREAM, 0));
      if (connect(sends.get(), address.get(), address.bytes) != 0) std::exit(1);
      for (size_t at = 0; at < from.size(); at += kWriteBytes) {
        const size_t bytes = std::min<size_t>(kWriteBytes, from.size() - at);
        if (send(sends.get(), from.data() + at, bytes, MSG_NOSIGNAL) !=
            static_cast<ssize_t>(bytes)) {
          std::exit(1);
        }
      }
      return;
    }
    const UniqueFd receives(accept(listener.get(), nullptr, nullptr));
    seconds = SecondsOf([&] {
      size_t at = 0;
      for (ssize_t came = 1; came > 0; at += static_cast<size_t>(came)) {
        came =
            recv(receives.get(), to.data() + at, std::min<size_t>(kWriteBytes, to.size() - at), 0);
      }
      if (at != to.size()) std::exit(1);
    });
  });
  return static_cast<double>(from.size()) / seconds;
}

// The same through one TcpConnection, plain or TLS.
double Stream(const Hosts& hosts,
              const TcpSecurity& security,
              const std::vector<char>& from,
              std::vector<char>& to) {
  const auto listeners = Listen(hosts, security);
  const auto bytes = static_cast<int64_t>(from.size());
  double seconds = 0;
  Both(hosts, [&](int side) {
    auto connection =
        side == 0 ? DialTcp(AddressOf(hosts[1], *listeners[1]), security, Instant::InfiniteFuture())
                  : listeners[1]->Accept(Instant::InfiniteFuture());
    Require(connection.status());
    const double took = SecondsOf([&] {
      for (int64_t at = 0; at < bytes; at += kWriteBytes) {
        const int64_t some = std::min(kWriteBytes, bytes - at);
        Require(side == 0
                    ? (*connection)->Send(from.data() + at, some, Instant::InfiniteFuture())
                    : (*connection)->Receive(to.data() + at, some, Instant::InfiniteFuture()));
      }
    });
    if (side == 1) seconds = took;
  });
  return static_cast<double>(from.size()) / seconds;
}

struct Rates {
  double gather = 0, scatter = 0, barrier_seconds = 1e9;
};

// What leaves both ranks together, in bytes a second; each sends half of `bytes`.
Rates Collectives(const Hosts& hosts, const TcpSecurity& security, int64_t bytes) {
  const auto listeners = Listen(hosts, security);
  GroupHosts group_hosts;
  group_hosts.security = security;
  for (size_t rank = 0; rank < hosts.size(); ++rank) {
    group_hosts.members.push_back(
        {absl::StrCat("host", rank), AddressOf(hosts[rank], *listeners[rank])});
  }
  Rates rates;
  Both(hosts, [&](int rank) {
    GroupHosts mine = group_hosts;
    mine.listener = listeners[static_cast<size_t>(rank)].get();
    SharedMemoryGroupOptions options;
    options.rank = rank;
    options.world_size = 2;
    options.hosts = &mine;
    if (const char* staging = std::getenv("TANDEM_STAGING_BYTES")) {
      options.staging_bytes = std::atoll(staging);
    }
    const auto group = JoinGroup(options);
    Require(group.status());
    const int64_t count = bytes / 2 / static_cast<int64_t>(sizeof(float));
    std::vector<float> all(static_cast<size_t>(2 * count), 1.0f), piece(all.size() / 2, 1.0f);
    const auto rate = [&](const std::function<absl::Status()>& call) {
      Require((*group)->Barrier());
      return static_cast<double>(bytes) / SecondsOf([&] { Require(call()); });
    };
    for (int repeat = 0; repeat < kRepeats; ++repeat) {
      const double gather =
          rate([&] { return (*group)->AllGather(piece.data(), bytes / 2, all.data()); });
      const double scatter = rate([&] {
        return (*group)->ReduceScatterSum(all.data(), {count, count}, piece.data(),
                                          Accumulate::kAdd);
      });
      const double barriers = SecondsOf([&] {
        for (int i = 0; i < 200; ++i) Require((*group)->Barrier());
      });
      if (rank != 0) continue;
      rates.gather = std::max(rates.gather, gather);
      rates.scatter = std::max(rates.scatter, scatter);
      rates.barrier_seconds = std::min(rates.barrier_seconds, barriers / 200);
    }
  });
  return rates;
}

void Report(const char* name, double rate, double beside) {
  fmt::print("{:<34} {:6.2f} GB/s   {:.2f}\n", name, rate / 1e9, rate / beside);
}

// The best of all turns.
struct Turns {
  double stream = 0, tcp_connection = 0;
  Rates rates;

  void Take(double of_stream, double of_connection, const Rates& turn) {
    stream = std::max(stream, of_stream);
    tcp_connection = std::max(tcp_connection, of_connection);
    rates.gather = std::max(rates.gather, turn.gather);
    rates.scatter = std::max(rates.scatter, turn.scatter);
    rates.barrier_seconds = std::min(rates.barrier_seconds, turn.barrier_seconds);
  }
};

void ReportGroup(const Turns& best) {
  Report("all-gather", best.rates.gather, best.stream);
  Report("reduce-scatter", best.rates.scatter, best.stream);
  fmt::print("{:<34} {:6.1f} us\n", "barrier", best.rates.barrier_seconds * 1e6);
}

}  // namespace

int BenchTcp(int64_t bytes, const std::array<BenchHost, 2>& hosts) {
  std::vector<char> from(static_cast<size_t>(bytes), 1), to(from.size(), 2);
  double copy = 0;
  Turns plain;
  for (int turn = 0; turn < kTurns; ++turn) {
    copy = std::max(copy, static_cast<double>(bytes) /
                              SecondsOf([&] { std::memcpy(to.data(), from.data(), from.size()); }));
    plain.Take(RawStream(hosts, from, to), Stream(hosts, {}, from, to),
               Collectives(hosts, {}, bytes));
  }
  fmt::print("2 ranks on {} and {}, {} MiB in all; what leaves both ranks, and beside a stream\n",
             hosts[0].address, hosts[1].address, bytes >> 20);
  Report("memcpy, 1 thread", copy, plain.stream);
  Report("stream, the system's calls", plain.stream, plain.stream);
  Report("stream, TcpConnection", plain.tcp_connection, plain.stream);
  ReportGroup(plain);
  const testing::TempDir dir;
  const testing::Authority authority(dir.path(), "bench");
  const RpcSecurity files =
      authority.Issue("trainer", fmt::format("{},IP:{},IP:{}", testing::NamesOf("trainer"),
                                             hosts[0].address, hosts[1].address));
  const TcpSecurity security{files.cert, files.key, files.ca, "demo", {"trainer"}};
  Turns tls;
  for (int turn = 0; turn < kTurns; ++turn) {
    const double stream = Stream(hosts, security, from, to);
    tls.Take(stream, stream, Collectives(hosts, security, bytes));
  }
  Report("stream, TLS 1.3", tls.stream, tls.stream);
  ReportGroup(tls);
  return 0;
}

}  // namespace tandem
