// A group over TCP computes the bytes of the group over shared memory.
#include <cstring>
#include <map>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include "common/base/mutex.h"
#include "common/base/status.h"
#include "tests/common/comm/hosts/tcp_ranks.h"
#include "tests/common/tcp/tcp_pair.h"
#include "tests/support/temp_dir.h"

namespace tandem {
namespace {

using testing::TcpRanks;

// All that a rank computes in a sequence of calls whose shapes `seed` decides, equally on all
// ranks.
class Script {
 public:
  explicit Script(uint32_t seed) : seed_(seed) {}

  absl::Status Run(Communicator& group, std::string* bytes) const {
    std::mt19937 shapes(seed_);
    std::mt19937 values(seed_ * 31 + 7 * static_cast<uint32_t>(group.rank()) + 1);
    for (int call = 0; call < 4; ++call) {
      TANDEM_RETURN_IF_ERROR(Gather(group, shapes, values, bytes));
      TANDEM_RETURN_IF_ERROR(Scatter(group, shapes, values, bytes));
      TANDEM_RETURN_IF_ERROR(AllReduce<float>(group, shapes, values, bytes));
      TANDEM_RETURN_IF_ERROR(AllReduce<double>(group, shapes, values, bytes));
      TANDEM_RETURN_IF_ERROR(Broadcast(group, shapes, values, bytes));
      TANDEM_RETURN_IF_ERROR(group.Barrier());
    }
    return absl::OkStatus();
  }

 private:
  // Some of them none, some a few, some more than all staging holds.
  static int64_t Count(std::mt19937& shapes) {
    const uint32_t kind = shapes() % 8;
    const uint32_t number = shapes();
    if (kind < 2) return 0;
    if (kind < 6) return number % 3000;
    return number % 20000;
  }
  static std::vector<int64_t> Counts(std::mt19937& shapes, int world) {
    std::vector<int64_t> counts(static_cast<size_t>(world));
    for (int64_t& count : counts) count = Count(shapes);
    return counts;
  }
  // Sums of them depend on the order.
  template <typename T>
  static std::vector<T> Values(std::mt19937& values, int64_t count) {
    std::vector<T> made(static_cast<size_t>(count));
    for (T& value : made) {
      value = static_cast<T>(static_cast<int32_t>(values())) * static_cast<T>(values() % 7 + 1e-3);
    }
    return made;
  }
  template <typename T>
  static void Append(const std::vector<T>& data, std::string* bytes) {
    bytes->append(reinterpret_cast<const char*>(data.data()), data.size() * sizeof(T));
  }

  static absl::Status Gather(Communicator& group,
                             std::mt19937& shapes,
                             std::mt19937& values,
                             std::string* bytes) {
    const std::vector<int64_t> counts = Counts(shapes, group.world_size());
    const bool takes = (shapes() >> (group.rank() % 16) & 3) != 0;
    const auto mine = Values<char>(values, counts[static_cast<size_t>(group.rank())]);
    std::vector<char> all(
        static_cast<size_t>(std::accumulate(counts.begin(), counts.end(), int64_t{0})) + 1);
    TANDEM_RETURN_IF_ERROR(group.AllGatherV(mine.data(), counts, takes ? all.data() : nullptr));
    Append(all, bytes);
    return absl::OkStatus();
  }

  static absl::Status Scatter(Communicator& group,
                              std::mt19937& shapes,
                              std::mt19937& values,
                              std::string* bytes) {
    std::vector<std::vector<float>> full, mine;
    std::vector<ScatteredSum> sums;
    for (uint32_t tensors = shapes() % 5; tensors > 0; --tensors) {
      const std::vector<int64_t> counts = Counts(shapes, group.world_size());
      full.push_back(
          Values<float>(values, std::accumulate(counts.begin(), counts.end(), int64_t{0})));
      mine.push_back(Values<float>(values, counts[static_cast<size_t>(group.rank())]));
      sums.push_back({full.back().data(), counts, mine.back().data()});
    }
    const Accumulate accumulate = shapes() % 2 == 0 ? Accumulate::kAdd : Accumulate::kReplace;
    TANDEM_RETURN_IF_ERROR(group.ReduceScatterSums(sums, accumulate));
    for (const std::vector<float>& piece : mine) Append(piece, bytes);
    return absl::OkStatus();
  }

  template <typename T>
  static absl::Status AllReduce(Communicator& group,
                                std::mt19937& shapes,
                                std::mt19937& values,
                                std::string* bytes) {
    auto data = Values<T>(values, Count(shapes));
    TANDEM_RETURN_IF_ERROR(group.AllReduceSum(data.data(), static_cast<int64_t>(data.size())));
    Append(data, bytes);
    return absl::OkStatus();
  }

  static absl::Status Broadcast(Communicator& group,
                                std::mt19937& shapes,
                                std::mt19937& values,
                                std::string* bytes) {
    auto data = Values<char>(values, Count(shapes));
    const int root = static_cast<int>(shapes() % static_cast<uint32_t>(group.world_size()));
    TANDEM_RETURN_IF_ERROR(group.Broadcast(data.data(), static_cast<int64_t>(data.size()), root));
    Append(data, bytes);
    return absl::OkStatus();
  }

  const uint32_t seed_;
};

// By rank. `run` runs a body on every rank of a group.
template <typename Run>
std::vector<std::string> BytesOf(uint32_t seed, int world, const Run& run) {
  std::vector<std::string> bytes(static_cast<size_t>(world));
  const std::vector<absl::Status> results = run([&](Communicator& group) {
    return Script(seed).Run(group, &bytes[static_cast<size_t>(group.rank())]);
  });
  for (const absl::Status& status : results) {
    INFO(status.ToString());
    REQUIRE(status.ok());
  }
  return bytes;
}

std::vector<std::string> SharedMemoryBytes(uint32_t seed, int world) {
  return BytesOf(seed, world, [&](const auto& body) { return testing::RunThreads(world, body); });
}

std::vector<std::string> TcpBytes(uint32_t seed, TcpRanks& ranks) {
  return BytesOf(seed, ranks.world_size(), [&](const auto& body) { return ranks.Run(body); });
}

std::string TextOf(const std::vector<int>& split) {
  std::string text;
  for (const int ranks : split) text += fmt::format(" {}", ranks);
  return text;
}

}  // namespace

TEST_CASE("over TCP all collectives have the bytes of shared memory, on every split of hosts") {
  const int world = GENERATE(2, 3, 5, 8);
  const uint32_t seed = 20 + static_cast<uint32_t>(world);
  const std::vector<std::string> expected = SharedMemoryBytes(seed, world);
  // Of 8 ranks there are 128 splits: every ninth, and the ends.
  const auto splits = testing::HostSplits(world);
  for (size_t i = 0; i < splits.size(); i += world == 8 ? 9 : 1) {
    for (const HostWay way : {HostWay::kDirect, HostWay::kChain}) {
      INFO(world << " ranks on hosts of" << TextOf(splits[i]) << ", way " << static_cast<int>(way));
      TcpRanks ranks(splits[i]);
      ranks.hosts().way = way;
      REQUIRE((TcpBytes(seed, ranks) == expected));
    }
  }
}

TEST_CASE("over TLS the bytes are the same") {
  const testing::TempDir dir;
  const testing::Authority ours(dir.path(), "ours");
  const auto security = testing::DataSecurity(ours.Issue("trainer", testing::NamesOf("trainer")));
  const std::vector<std::string> expected = SharedMemoryBytes(9, 3);
  for (const HostWay way : {HostWay::kDirect, HostWay::kChain}) {
    TcpRanks ranks({1, 2}, security);
    ranks.hosts().way = way;
    REQUIRE((TcpBytes(9, ranks) == expected));
  }
}

TEST_CASE("the chain is chosen where a host would send more without it") {
  const auto chooses = [](const std::vector<int>& split) {
    TcpRanks ranks(split);
    return UsesChain(HostWay::kAuto, RanksByHost(ranks.hosts().members).value());
  };
  REQUIRE(!chooses({1, 1}));
  REQUIRE(!chooses({2, 2}));  // equal
  REQUIRE(chooses({3, 3}));
  REQUIRE(chooses({2, 2, 2}));
  REQUIRE(!chooses({1, 1, 1, 1}));
  REQUIRE(!chooses({8}));
}

TEST_CASE("ranks of one host meet over shared memory, also if they have members") {
  TcpRanks ranks({2});
  ranks.hosts().always = false;
  REQUIRE(!UsesTcp(ranks.hosts()));
  REQUIRE(!UsesTcp({}));
  // Nobody could join over TCP.
  for (GroupMember& member : ranks.hosts().members) member.data_address = "127.0.0.1:1";
  for (const absl::Status& status :
       ranks.Run([](Communicator& group) { return group.Barrier(); })) {
    REQUIRE(status.ok());
  }
  TcpRanks two({1, 1});
  two.hosts().always = false;
  REQUIRE(UsesTcp(two.hosts()));
}

TEST_CASE("ranks of a host that are no neighbours are refused") {
  TcpRanks ranks({1, 1, 1});
  ranks.hosts().members[2].host = "host0";
  for (const absl::Status& status :
       ranks.Run([](Communicator& group) { return group.Barrier(); })) {
    REQUIRE(absl::IsInvalidArgument(status));
    REQUIRE(testing::Says(status, "ranks 0 and 2 are on host host0 and are no neighbours"));
  }
}

}  // namespace tandem
