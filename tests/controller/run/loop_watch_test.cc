#include "controller/run/loop_watch.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <thread>
#include <vector>

#include <catch2/catch.hpp>

#include "common/process/threads.h"
#include "controller/run/run_control.h"
#include "tests/fakes/fake_clock.h"
#include "tests/support/notify_listener.h"
#include "tests/support/own_progress.h"
#include "tests/support/patience.h"

namespace tandem {
namespace {

// A launcher with a watchdog of 120 s, which hears what a LoopWatch of one train loop says.
struct LoopWatchFixture {
  testing::NotifyListener launcher;
  testing::FakeClock clock;
  ServiceNotifier notifier = MakeNotifier();
  LoopWatch watch{notifier, clock};
  ThreadProgress loop{.thread = 1, .work_due = true, .activity = "score"};

  ServiceNotifier MakeNotifier() {
    setenv("NOTIFY_SOCKET", launcher.path.c_str(), 1);
    setenv("WATCHDOG_USEC", "120000000", 1);
    return ServiceNotifier(clock);
  }
  // The longest time between two signs of life while `seconds` pass, and the loop does `each`
  // second what it does. What is left at the end counts too.
  template <typename Each>
  int Silence(int seconds, const Each& each) {
    int longest = 0, silent = 0;
    for (int second = 0; second < seconds; ++second) {
      clock.Advance(absl::Seconds(1));
      each(second);
      watch.Poll({loop});
      silent = launcher.Take().empty() ? silent + 1 : 0;
      longest = std::max(longest, silent);
    }
    return longest;
  }
};

constexpr int kWatchdog = 120;

TEST_CASE("A train loop that stands still lets the watchdog's time pass without a sign", "[loop]") {
  LoopWatchFixture f;
  REQUIRE(f.Silence(600, [&](int) { ++f.loop.moves; }) < kWatchdog / 2);
  REQUIRE(f.Silence(kWatchdog * 4 / 3, [](int) {}) >= kWatchdog - 1);
  // It goes on after all, and nobody has killed it.
  ++f.loop.moves;
  REQUIRE(f.Silence(600, [&](int) { ++f.loop.moves; }) < kWatchdog / 2);
}

TEST_CASE("A loop that moves slower than signs are due, but within the limit, is left alone",
          "[loop]") {
  LoopWatchFixture f;
  const auto slowly = [&](int second) {
    if (second % (kWatchdog - 10) == 0) ++f.loop.moves;
  };
  REQUIRE(f.Silence(3600, slowly) < kWatchdog);
}

TEST_CASE("A loop that waits for a disk, a user or workers for hours is left alone", "[loop]") {
  LoopWatchFixture f;
  f.loop.work_due = false;
  REQUIRE(f.Silence(4 * 3600, [](int) {}) < kWatchdog / 2);
  // And has its whole time afterwards.
  f.loop.work_due = true;
  REQUIRE(f.Silence(kWatchdog - 10, [](int) {}) < kWatchdog);
}

TEST_CASE("No change of the machine's date makes a loop stand still, or hides that it does",
          "[loop]") {
  for (const absl::Duration change : {absl::Hours(1), -absl::Hours(1)}) {
    LoopWatchFixture f;
    REQUIRE(f.Silence(100, [&](int second) {
      ++f.loop.moves;
      if (second == 50) f.clock.SetDate(change);
    }) < kWatchdog / 2);
    REQUIRE(f.Silence(kWatchdog * 4 / 3, [&](int second) {
      if (second == 50) f.clock.SetDate(change);
    }) >= kWatchdog - 1);
  }
}

TEST_CASE("A run that waits for its users' commands has no work due", "[loop]") {
  RunControl control(10, StartMode::kPaused);
  std::atomic<int64_t> number{0};
  NamedThread loop("train loop", [&] {
    const WorkStep watched("train loop");
    number = testing::OwnThread();
    (void)control.WaitForNext();
  });
  const auto waits = [&number] {
    const std::vector<ThreadProgress> all = CurrentProgress();
    return std::any_of(all.begin(), all.end(), [&number](const ThreadProgress& progress) {
      return progress.thread == number && !progress.work_due;
    });
  };
  const Instant deadline = RealClock().Now() + testing::kPatience;
  bool waiting = waits();
  while (!waiting && RealClock().Now() < deadline) {
    std::this_thread::yield();
    waiting = waits();
  }
  control.StopAfterStep();
  loop.Join();
  REQUIRE(waiting);
}

}  // namespace
}  // namespace tandem
