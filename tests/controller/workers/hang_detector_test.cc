#include "controller/workers/hang_detector.h"

#include <filesystem>
#include <fstream>

#include <catch2/catch.hpp>

#include "common/net/protocol.h"
#include "tests/fakes/fake_clock.h"
#include "tests/support/temp_dir.h"

namespace tandem {
namespace {

const WorkerKey kWatchedTrainer{WorkerRole::kTrainer, 0};

struct HangWatchFixture {
  testing::TempDir dir;
  testing::FakeClock clock;
  WorkerRegistry registry{{.heartbeat_timeout = absl::Seconds(10),
                           .progress_limit = absl::Seconds(60),
                           .host = {.boot_id = "here"},
                           .process_start = [](int64_t) { return "pid:[1] 7"; },
                           .own_process_start = "pid:[1] 3"},
                          clock};
  HangDetector watch{
      {.run_dir = dir.path().string(), .no_heartbeat_for = absl::Seconds(20)}, registry, clock};

  int64_t Register(int64_t pid,
                   const std::string& host = "here",
                   const std::string& start = "pid:[1] 7") {
    return registry
        .Register({.protocol = kProtocolVersion,
                   .key = kWatchedTrainer,
                   .host = {.boot_id = host},
                   .boot_nonce = std::to_string(pid),
                   .pid = pid,
                   .numerics_class = "avx2",
                   .process_start = start})
        .value();
  }
  void Pass(double seconds) {
    clock.Advance(absl::Seconds(seconds));
    registry.DetectLost();
    watch.Poll();
  }
  // The process that shall be killed, 0 for none.
  int64_t Asked() const {
    std::ifstream file(dir.path() / "hung" / "trainer-0");
    int64_t pid = 0;
    file >> pid;
    return pid;
  }
};

TEST_CASE("A worker that stays silent is given to the launcher, once per process", "[hang]") {
  HangWatchFixture f;
  f.Register(71);
  f.Pass(11);
  REQUIRE(f.Asked() == 0);  // lost, but it may have been suspended
  f.Pass(10);
  REQUIRE(f.Asked() == 71);
  std::filesystem::remove(f.dir.path() / "hung" / "trainer-0");
  f.Pass(1);
  REQUIRE(f.Asked() == 0);
  f.Register(72);
  f.Pass(21);
  REQUIRE(f.Asked() == 72);
}

TEST_CASE("A worker that speaks again, or lives elsewhere, is left alone", "[hang]") {
  HangWatchFixture f;
  const int64_t incarnation = f.Register(71);
  f.Pass(11);
  REQUIRE(f.registry.Heartbeat(kWatchedTrainer, incarnation, {}).ok());
  f.Pass(10);
  REQUIRE(f.Asked() == 0);
  f.registry.MarkLost(kWatchedTrainer, incarnation);
  f.Register(72, "another host");
  f.Pass(30);
  REQUIRE(f.Asked() == 0);
}

TEST_CASE("A worker whose host has an agent is killed by that agent, on any host", "[hang]") {
  HangWatchFixture f;
  std::vector<int64_t> asked;
  bool agent_is_there = false;
  HangDetector watch({.run_dir = f.dir.path().string(),
                      .no_heartbeat_for = absl::Seconds(20),
                      .ask_agent =
                          [&](const WorkerEntry& worker) {
                            if (agent_is_there) asked.push_back(worker.announcement.pid);
                            return agent_is_there;
                          }},
                     f.registry, f.clock);
  f.Register(71, "another host");
  f.clock.Advance(absl::Seconds(30));
  f.registry.DetectLost();
  watch.Poll();  // its agent has not come back to a controller that was started again
  REQUIRE(asked.empty());
  agent_is_there = true;
  watch.Poll();
  watch.Poll();
  REQUIRE(asked == std::vector<int64_t>{71});
  REQUIRE(f.Asked() == 0);
}

TEST_CASE("A worker that came back is given to the launcher again when it hangs again", "[hang]") {
  HangWatchFixture f;
  const int64_t incarnation = f.Register(71);
  f.Pass(21);
  REQUIRE(f.Asked() == 71);
  std::filesystem::remove(f.dir.path() / "hung" / "trainer-0");
  REQUIRE(f.registry.Heartbeat(kWatchedTrainer, incarnation, {}).ok());
  f.Pass(1);
  REQUIRE(f.Asked() == 0);
  f.Pass(20);
  REQUIRE(f.Asked() == 71);
}

TEST_CASE("A worker whose engine stands still is given to the launcher although it speaks",
          "[hang]") {
  HangWatchFixture f;
  const int64_t incarnation = f.Register(71);
  const auto beat = [&](absl::Duration still_for) {
    const EngineProgress progress{.activity = "weight sync, bucket 3", .still_for = still_for};
    REQUIRE(f.registry.Heartbeat(kWatchedTrainer, incarnation, {.progress = progress}).ok());
    f.Pass(1);
  };
  beat(absl::Seconds(59));
  REQUIRE(f.Asked() == 0);
  beat(absl::Seconds(60));
  REQUIRE(f.Asked() == 71);
}

TEST_CASE("A worker that a controller of another container knew is watched once it has come back",
          "[hang]") {
  HangWatchFixture f;
  WorkerEntry unseen;
  unseen.announcement = {
      .key = kWatchedTrainer, .host = {.boot_id = "here"}, .boot_nonce = "71", .pid = 71};
  unseen.incarnation = 1;
  unseen.state = WorkerEntry::State::kLost;
  f.registry.Reserve({unseen});
  f.Pass(30);
  REQUIRE(f.Asked() == 0);  // its number may be another process's
  REQUIRE(f.Register(71) == 1);
  f.Pass(21);
  REQUIRE(f.Asked() == 71);
}

TEST_CASE("A worker in another container of this host is left alone", "[hang]") {
  HangWatchFixture f;
  // Its number 71 is there another process than the 71 that is seen from here.
  f.Register(71, "here", "pid:[2] 9");
  f.Pass(30);
  REQUIRE(f.Asked() == 0);
}

TEST_CASE("A worker of an earlier controller that lives and stays away is given to the launcher",
          "[hang]") {
  HangWatchFixture f;
  const auto restored = [](WorkerEntry::State state, int64_t pid, const std::string& start) {
    WorkerEntry worker;
    worker.announcement = {.key = kWatchedTrainer, .host = {.boot_id = "here"}, .pid = pid};
    worker.incarnation = 1;
    worker.state = state;
    worker.process_start = start;
    return worker;
  };
  f.registry.Reserve({restored(WorkerEntry::State::kStarting, 70, "pid:[1] 7")});
  f.Pass(30);
  REQUIRE(f.Asked() == 0);  // it loads
  f.registry.Reserve({restored(WorkerEntry::State::kLost, 70, "pid:[1] 6")});
  f.Pass(30);
  REQUIRE(f.Asked() == 0);  // it has ended, and its number is another's
  f.registry.Reserve({restored(WorkerEntry::State::kLost, 71, "pid:[1] 7")});
  f.Pass(11);
  REQUIRE(f.Asked() == 0);
  f.Pass(10);
  REQUIRE(f.Asked() == 71);
}

TEST_CASE("No change of the machine's date makes a worker hang, or hides one", "[hang]") {
  for (const absl::Duration change : {absl::Hours(1), -absl::Hours(1)}) {
    HangWatchFixture f;
    f.Register(71);
    f.clock.SetDate(change);
    f.Pass(9);
    REQUIRE(f.registry.ReadyIncarnation(kWatchedTrainer).has_value());
    f.Pass(12);
    REQUIRE(f.Asked() == 71);
  }
}

}  // namespace
}  // namespace tandem
