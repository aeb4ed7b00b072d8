// tandem-comm-bench tcp [MiB]: collectives of two ranks over TCP on 127.0.0.1, plain and TLS,
// beside a stream through one connection, which is what iperf3 measures, in the same run.
#include "tests/bench/tcp_comm_bench.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <thread>
#include <vector>

#include <absl/strings/str_cat.h>
#include <fmt/format.h>
#include <netinet/in.h>
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

// Two threads, of which each runs `body` with its number.
void Both(const std::function<void(int)>& body) {
  std::thread other([&] { body(1); });
  body(0);
  other.join();
}

std::unique_ptr<TcpListener> ListenHere(const TcpSecurity& security) {
  auto listener = TcpListener::Listen("127.0.0.1:0", security);
  Require(listener.status());
  return std::move(listener).value();
}

// Bytes a second through blocking calls of the system in one direction, without any code of ours.
double RawStream(const std::vector<char>& from, std::vector<char>& to) {
  const UniqueFd listener(socket(AF_INET, SOCK_STREAM, 0));
  ResolvedAddress address = ResolveTcpAddress("127.0.0.1:0").value()[0];
  if (bind(listener.get(), address.get(), address.bytes) != 0 || listen(listener.get(), 1) != 0 ||
      getsockname(listener.get(), reinterpret_cast<sockaddr*>(&address.storage), &address.bytes) !=
          0) {
    std::exit(1);
  }
  double seconds = 0;
  Both([&](int side) {
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
double Stream(const TcpSecurity& security, const std::vector<char>& from, std::vector<char>& to) {
  const auto listener = ListenHere(security);
  const auto bytes = static_cast<int64_t>(from.size());
  double seconds = 0;
  Both([&](int side) {
    auto connection = side == 0 ? DialTcp(fmt::format("127.0.0.1:{}", listener->port()), security,
                                          Instant::InfiniteFuture())
                                : listener->Accept(Instant::InfiniteFuture());
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
Rates Collectives(const TcpSecurity& security, int64_t bytes) {
  GroupHosts hosts;
  hosts.security = security;
  std::vector<std::unique_ptr<TcpListener>> listeners;
  for (int rank = 0; rank < 2; ++rank) {
    listeners.push_back(ListenHere(security));
    hosts.members.push_back(
        {absl::StrCat("host", rank), fmt::format("127.0.0.1:{}", listeners[rank]->port())});
  }
  Rates rates;
  Both([&](int rank) {
    GroupHosts mine = hosts;
    mine.listener = listeners[rank].get();
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

int BenchTcp(int64_t bytes) {
  std::vector<char> from(static_cast<size_t>(bytes), 1), to(from.size(), 2);
  double copy = 0;
  Turns plain;
  for (int turn = 0; turn < kTurns; ++turn) {
    copy = std::max(copy, static_cast<double>(bytes) /
                              SecondsOf([&] { std::memcpy(to.data(), from.data(), from.size()); }));
    plain.Take(RawStream(from, to), Stream({}, from, to), Collectives({}, bytes));
  }
  fmt::print("2 ranks on 127.0.0.1, {} MiB in all; what leaves both ranks, and beside a stream\n",
             bytes >> 20);
  Report("memcpy, 1 thread", copy, plain.stream);
  Report("stream, the system's calls", plain.stream, plain.stream);
  Report("stream, TcpConnection", plain.tcp_connection, plain.stream);
  ReportGroup(plain);
  const testing::TempDir dir;
  const testing::Authority authority(dir.path(), "bench");
  const RpcSecurity files = authority.Issue("trainer", testing::NamesOf("trainer"));
  const TcpSecurity security{files.cert, files.key, files.ca, "demo", {"trainer"}};
  Turns tls;
  for (int turn = 0; turn < kTurns; ++turn) {
    const double stream = Stream(security, from, to);
    tls.Take(stream, stream, Collectives(security, bytes));
  }
  Report("stream, TLS 1.3", tls.stream, tls.stream);
  ReportGroup(tls);
  return 0;
}

}  // namespace tandem
