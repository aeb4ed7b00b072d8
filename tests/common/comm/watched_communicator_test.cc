#include "common/comm/watched_communicator.h"

#include <array>

#include <catch2/catch.hpp>

#include "tests/fakes/fake_clock.h"

namespace tandem {

TEST_CASE("CollectiveLog tells the collective that runs, else the last one", "[comm]") {
  testing::FakeClock clock;
  CollectiveLog log(clock);
  REQUIRE(log.Last().name.empty());
  log.Begin("all-gather", 12);
  clock.Advance(absl::Seconds(2));
  CollectiveNote note = log.Last();
  REQUIRE(note.name == "all-gather");
  REQUIRE(note.bytes == 12);
  REQUIRE(note.running);
  REQUIRE(note.seconds == 2);
  log.End();
  clock.Advance(absl::Seconds(3));
  note = log.Last();
  REQUIRE_FALSE(note.running);
  REQUIRE(note.seconds == 3);
  REQUIRE(note.count == 1);
}

TEST_CASE("WatchedCommunicator notes each collective and passes it on", "[comm]") {
  testing::FakeClock clock;
  CollectiveLog log(clock);
  WatchedCommunicator group(std::make_unique<SoloCommunicator>(), log);
  REQUIRE(&group.host() == &group);
  REQUIRE(group.world_size() == 1);
  std::array<float, 3> values = {1, 2, 3}, result = {};
  REQUIRE(group.AllGather(values.data(), sizeof(values), result.data()).ok());
  REQUIRE(result == values);
  REQUIRE(log.Last().name == "all-gather");
  REQUIRE(log.Last().bytes == sizeof(values));
  result = {};
  REQUIRE(group.ReduceScatterSum(values.data(), {3}, result.data(), Accumulate::kReplace).ok());
  REQUIRE(result == values);
  REQUIRE(log.Last().name == "reduce-scatter");
  REQUIRE(log.Last().bytes == sizeof(values));
  double sum = 4;
  REQUIRE(group.AllReduceSum(&sum, 1).ok());
  REQUIRE(log.Last().name == "all-reduce");
  REQUIRE(log.Last().bytes == sizeof(sum));
  REQUIRE(group.AllReduceSum(values.data(), 2).ok());
  REQUIRE(log.Last().bytes == 2 * sizeof(float));
  REQUIRE(group.Broadcast(values.data(), 4, 0).ok());
  REQUIRE(log.Last().name == "broadcast");
  REQUIRE(group.Barrier().ok());
  REQUIRE(log.Last().name == "barrier");
  REQUIRE(log.Last().count == 6);
  group.Abort("over");
  REQUIRE(group.Barrier().message() == "over");
  REQUIRE_FALSE(log.Last().running);
}

}  // namespace tandem
