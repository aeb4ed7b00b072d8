#include <cstring>
#include <numeric>
#include <vector>

#include <catch2/catch.hpp>

#include "common/base/mutex.h"
#include "common/base/status.h"
#include "common/comm/communicator.h"
#include "tests/common/comm/comm_test_group.h"

namespace tandem {
namespace {

using testing::kWays;
using testing::RunThreads;
using testing::Way;

// A value whose sums depend on their order.
float Value(int rank, int64_t i) {
  return static_cast<float>((rank * 7919 + i * 104729) % 10007) * 1.37e-3f - 3.1f + rank * 1e4f;
}

std::vector<int64_t> Counts(int world, int kind) {
  std::vector<int64_t> counts(world);
  for (int rank = 0; rank < world; ++rank) {
    if (kind == 0) counts[rank] = 1000;
    if (kind == 1) counts[rank] = rank == 0 ? 0 : 5003 * rank;  // rank 0 has nothing
    if (kind == 2) counts[rank] = 0;
    if (kind == 3) counts[rank] = rank == world - 1 ? 1 : 0;  // one value in all
    if (kind == 4) counts[rank] = 2048;                       // exactly one staging buffer
  }
  return counts;
}

absl::Status CheckGather(Communicator& group, const std::vector<int64_t>& counts) {
  std::vector<float> mine(counts[group.rank()]);
  for (size_t i = 0; i < mine.size(); ++i) mine[i] = Value(group.rank(), i);
  std::vector<int64_t> bytes;
  for (const int64_t count : counts) bytes.push_back(count * 4);
  std::vector<float> all(std::accumulate(counts.begin(), counts.end(), int64_t{0}), -1.0f);
  TANDEM_RETURN_IF_ERROR(group.AllGatherV(mine.data(), bytes, all.data()));
  size_t at = 0;
  for (int rank = 0; rank < group.world_size(); ++rank) {
    for (int64_t i = 0; i < counts[rank]; ++i) {
      if (all[at++] != Value(rank, i)) return Internal("gather: rank {} element {}", rank, i);
    }
  }
  // The same for the last rank alone.
  const bool takes = group.rank() == group.world_size() - 1;
  std::vector<float> taken(all.size(), -1.0f);
  TANDEM_RETURN_IF_ERROR(group.AllGatherV(mine.data(), bytes, takes ? taken.data() : nullptr));
  if (takes && taken != all) return Internal("gather for one rank differs");
  return absl::OkStatus();
}

absl::Status CheckScatter(Communicator& group, Way way, const std::vector<int64_t>& counts) {
  const int world = group.world_size();
  const int start = testing::FirstOfSum(way, group.rank(), world);
  const int64_t total = std::accumulate(counts.begin(), counts.end(), int64_t{0});
  const int64_t first = std::accumulate(counts.begin(), counts.begin() + group.rank(), int64_t{0});
  std::vector<float> full(total);
  for (int64_t i = 0; i < total; ++i) full[i] = Value(group.rank(), i);
  std::vector<float> mine(counts[group.rank()], 0.5f);
  TANDEM_RETURN_IF_ERROR(
      group.ReduceScatterSum(full.data(), counts, mine.data(), Accumulate::kReplace));
  std::vector<float> added(mine);
  TANDEM_RETURN_IF_ERROR(
      group.ReduceScatterSum(full.data(), counts, added.data(), Accumulate::kAdd));
  for (size_t i = 0; i < mine.size(); ++i) {
    float sum = Value(start, first + i);
    for (int rank = 1; rank < world; ++rank) sum += Value((start + rank) % world, first + i);
    if (mine[i] != sum) return Internal("scatter: element {}", i);
    if (added[i] != sum + sum) return Internal("scatter with add: element {}", i);
  }
  return absl::OkStatus();
}

// Tensors of every kind of counts in one call, which begin in the middle of rounds.
absl::Status CheckScatterOfMany(Communicator& group, Way way) {
  const int world = group.world_size();
  const int me = group.rank();
  std::vector<std::vector<float>> full, mine;
  std::vector<ScatteredSum> sums;
  for (const int kind : {3, 0, 1, 2, 3, 4, 0, 1}) {
    const std::vector<int64_t> counts = Counts(world, kind);
    full.emplace_back(std::accumulate(counts.begin(), counts.end(), int64_t{0}));
    for (size_t i = 0; i < full.back().size(); ++i) full.back()[i] = Value(me, i + 17 * kind);
    mine.emplace_back(counts[me], 0.5f);
    sums.push_back({full.back().data(), counts, mine.back().data()});
  }
  TANDEM_RETURN_IF_ERROR(group.ReduceScatterSums(sums, Accumulate::kAdd));
  for (size_t tensor = 0; tensor < sums.size(); ++tensor) {
    std::vector<float> alone(mine[tensor].size(), 0.5f);
    TANDEM_RETURN_IF_ERROR(group.ReduceScatterSum(sums[tensor].full, sums[tensor].counts_per_rank,
                                                  alone.data(), Accumulate::kAdd));
    if (alone != mine[tensor]) return Internal("tensor {} of several differs", tensor);
  }
  // Against the sums themselves: the last tensor.
  const std::vector<int64_t>& counts = sums.back().counts_per_rank;
  const int64_t first = std::accumulate(counts.begin(), counts.begin() + me, int64_t{0}) + 17;
  const int start = testing::FirstOfSum(way, me, world);
  for (size_t i = 0; i < mine.back().size(); ++i) {
    float sum = Value(start, first + i);
    for (int rank = 1; rank < world; ++rank) sum += Value((start + rank) % world, first + i);
    if (mine.back()[i] != 0.5f + sum) return Internal("scatter of many: element {}", i);
  }
  return group.ReduceScatterSums({}, Accumulate::kAdd);
}

template <typename T>
absl::Status CheckReduce(Communicator& group, int64_t count) {
  std::vector<T> values(count);
  for (int64_t i = 0; i < count; ++i) values[i] = Value(group.rank(), i);
  TANDEM_RETURN_IF_ERROR(group.AllReduceSum(values.data(), count));
  for (int64_t i = 0; i < count; ++i) {
    T sum = Value(0, i);
    for (int rank = 1; rank < group.world_size(); ++rank) sum += static_cast<T>(Value(rank, i));
    if (values[i] != sum) return Internal("reduce: element {}", i);
  }
  return absl::OkStatus();
}

absl::Status CheckBroadcast(Communicator& group, int64_t bytes, int root) {
  std::vector<char> data(bytes);
  for (int64_t i = 0; i < bytes; ++i) data[i] = group.rank() == root ? i % 251 : 0;
  TANDEM_RETURN_IF_ERROR(group.Broadcast(data.data(), bytes, root));
  for (int64_t i = 0; i < bytes; ++i) {
    if (data[i] != static_cast<char>(i % 251)) return Internal("broadcast: byte {}", i);
  }
  return absl::OkStatus();
}

absl::Status CheckAll(Communicator& group, Way way) {
  for (int repeat = 0; repeat < 3; ++repeat) {
    for (int kind = 0; kind < 5; ++kind) {
      TANDEM_RETURN_IF_ERROR(CheckGather(group, Counts(group.world_size(), kind)));
      TANDEM_RETURN_IF_ERROR(CheckScatter(group, way, Counts(group.world_size(), kind)));
    }
    TANDEM_RETURN_IF_ERROR(CheckScatterOfMany(group, way));
    for (const int64_t count : {0, 1, 2048, 12345}) {
      TANDEM_RETURN_IF_ERROR(CheckReduce<float>(group, count));
      TANDEM_RETURN_IF_ERROR(CheckReduce<double>(group, count));
      TANDEM_RETURN_IF_ERROR(CheckBroadcast(group, count, group.world_size() - 1));
    }
    TANDEM_RETURN_IF_ERROR(group.Barrier());
  }
  return absl::OkStatus();
}

}  // namespace

TEST_CASE("collectives give every rank the ordered result with threads as ranks") {
  for (const Way way : kWays) {
    for (const int world : {1, 2, 3}) {
      const auto check = [way](Communicator& group) { return CheckAll(group, way); };
      for (const absl::Status& status : RunThreads(way, world, check)) {
        INFO(testing::NameOf(way) << ", " << world << " ranks: " << status.ToString());
        REQUIRE(status.ok());
      }
    }
  }
}

TEST_CASE("collectives give every rank the ordered result with processes as ranks") {
  for (const Way way : {Way::kHost, Way::kStaged}) {
    for (const int world : {2, 3}) {
      const auto check = [way](Communicator& g) { return CheckAll(g, way).ok() ? 0 : 1; };
      std::vector<pid_t> children;
      for (int rank = 0; rank < world; ++rank) {
        children.push_back(testing::ForkRank(testing::GroupOptions(rank, world), check, way));
      }
      for (const pid_t child : children) REQUIRE(testing::WaitForExit(child) == 0);
    }
  }
}

TEST_CASE("a gather accepts a contribution that lies in its place") {
  const Way way = GENERATE(Way::kHost, Way::kStaged, Way::kNccl);
  const auto results = RunThreads(way, 3, [](Communicator& group) -> absl::Status {
    std::vector<int> all(300, -1);
    for (int i = 0; i < 100; ++i) all[group.rank() * 100 + i] = group.rank() * 1000 + i;
    TANDEM_RETURN_IF_ERROR(group.AllGather(all.data() + group.rank() * 100, 400, all.data()));
    for (int i = 0; i < 300; ++i) {
      if (all[i] != i / 100 * 1000 + i % 100) return Internal("element {}", i);
    }
    return absl::OkStatus();
  });
  for (const absl::Status& status : results) REQUIRE(status.ok());
}

TEST_CASE("collectives repeat bit for bit") {
  const Way way = GENERATE(Way::kHost, Way::kStaged, Way::kNccl);
  struct {
    Mutex mutex;
    std::vector<std::vector<float>> values ABSL_GUARDED_BY(mutex);
  } seen;
  for (int run = 0; run < 3; ++run) {
    const auto results = RunThreads(way, 3, [&](Communicator& group) -> absl::Status {
      std::vector<float> full(30000);
      for (size_t i = 0; i < full.size(); ++i) full[i] = Value(group.rank(), i) / 3.0f;
      std::vector<float> values(30000);
      float* const mine = values.data() + group.rank() * 10000;
      TANDEM_RETURN_IF_ERROR(
          group.ReduceScatterSum(full.data(), {10000, 10000, 10000}, mine, Accumulate::kAdd));
      TANDEM_RETURN_IF_ERROR(group.AllGather(mine, 40000, values.data()));
      const MutexLock lock(seen.mutex);
      seen.values.push_back(values);
      return absl::OkStatus();
    });
    for (const absl::Status& status : results) REQUIRE(status.ok());
  }
  const MutexLock lock(seen.mutex);
  for (const auto& values : seen.values) {
    REQUIRE(memcmp(values.data(), seen.values[0].data(), values.size() * 4) == 0);
  }
}

TEST_CASE("a group of one copies and keeps its abort") {
  SoloCommunicator solo;
  REQUIRE(CheckAll(solo, Way::kHost).ok());
  solo.Abort("reset");
  REQUIRE(solo.Barrier().code() == absl::StatusCode::kAborted);
}

}  // namespace tandem
