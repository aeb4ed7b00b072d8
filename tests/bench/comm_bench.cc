// tandem-comm-bench [RANKS] [MiB]: GB/s of the shared memory collectives, ranks as threads, beside
// memcpy on the same machine. tandem-comm-bench tcp [MiB [NETWORK ADDRESS NETWORK ADDRESS]]: those
// over TCP, on 127.0.0.1 or between two namespaces of `ip netns`, which deploy/bench.sh --only
// hosts makes.
#include <array>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <unistd.h>

#include "common/comm/shared_memory_communicator.h"
#include "tests/bench/tcp_comm_bench.h"

namespace {

double SecondsOf(const std::function<void()>& body) {
  const auto start = std::chrono::steady_clock::now();
  body();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// The best of five.
double Best(const std::function<void()>& body) {
  double best = 1e9;
  for (int i = 0; i < 5; ++i) best = std::min(best, SecondsOf(body));
  return best;
}

void Bench(tandem::Communicator& group, int64_t bytes) {
  const int world = group.world_size();
  const int64_t shard = bytes / world / 4 * 4;
  std::vector<float> all(shard / 4 * world, 1.0f), mine(shard / 4, 1.0f);
  const std::vector<int64_t> counts(world, shard / 4);
  const auto report = [&](const char* name, double seconds, double moved) {
    if (group.rank() == 0) fmt::print("{:<16} {:8.2f} GB/s\n", name, moved / seconds / 1e9);
  };
  const auto require = [](const absl::Status& status) {
    if (status.ok()) return;
    fmt::print(stderr, "{}\n", status.ToString());
    std::exit(1);
  };
  // Bytes that a rank receives from others.
  const double received = static_cast<double>(shard) * (world - 1);
  report("all-gather", Best([&] { require(group.AllGather(mine.data(), shard, all.data())); }),
         received);
  report(
      "reduce-scatter", Best([&] {
        require(group.ReduceScatterSum(all.data(), counts, mine.data(), tandem::Accumulate::kAdd));
      }),
      received);
  report("all-reduce", Best([&] { require(group.AllReduceSum(mine.data(), shard / 4)); }),
         received);
  report("broadcast", Best([&] { require(group.Broadcast(all.data(), shard, 0)); }),
         static_cast<double>(shard));
  const double seconds = Best([&] {
    for (int i = 0; i < 1000; ++i) require(group.Barrier());
  });
  if (group.rank() == 0) fmt::print("{:<16} {:8.2f} us\n", "barrier", seconds * 1e3);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 1 && std::string(argv[1]) == "tcp") {
    std::array<tandem::BenchHost, 2> hosts;
    for (int i = 0; i < 2 && argc == 7; ++i) hosts[i] = {argv[3 + 2 * i], argv[4 + 2 * i]};
    return tandem::BenchTcp((argc > 2 ? std::atoll(argv[2]) : 64) << 20, hosts);
  }
  const int world = argc > 1 ? std::atoi(argv[1]) : 2;
  const int64_t bytes = (argc > 2 ? std::atoll(argv[2]) : 64) << 20;
  std::vector<char> source(bytes, 1), target(bytes, 2);
  fmt::print("{} ranks, {} MiB in all\n", world, bytes >> 20);
  fmt::print("{:<16} {:8.2f} GB/s\n", "memcpy, 1 thread",
             bytes / Best([&] { memcpy(target.data(), source.data(), bytes); }) / 1e9);
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < world; ++rank) {
    ranks.emplace_back([=] {
      tandem::SharedMemoryGroupOptions options;
      options.rank = rank;
      options.world_size = world;
      options.rendezvous = "/tmp/tandem-comm-bench-" + std::to_string(getpid()) + ".sock";
      if (const char* staging = std::getenv("TANDEM_STAGING_BYTES")) {
        options.staging_bytes = std::atoll(staging);
      }
      auto group = tandem::JoinSharedMemoryGroup(options);
      if (group.ok()) Bench(**group, bytes);
    });
  }
  for (std::thread& rank : ranks) rank.join();
  return 0;
}
