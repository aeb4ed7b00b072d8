#include "common/process/service_notifier.h"

#include <cstdlib>
#include <string>

#include <catch2/catch.hpp>

#include "tests/fakes/fake_clock.h"
#include "tests/support/notify_listener.h"

namespace tandem {
namespace {

TEST_CASE("A notifier speaks sd_notify's protocol, three times within the watchdog's time",
          "[notify]") {
  const testing::NotifyListener listener;
  testing::FakeClock clock;
  setenv("NOTIFY_SOCKET", listener.path.c_str(), 1);
  setenv("WATCHDOG_USEC", "30000000", 1);
  ServiceNotifier notifier(clock);
  REQUIRE(std::getenv("NOTIFY_SOCKET") == nullptr);
  REQUIRE(std::getenv("WATCHDOG_USEC") == nullptr);
  notifier.Ready();
  REQUIRE(listener.Take() == "READY=1");
  notifier.KeepAlive();
  notifier.KeepAlive();
  REQUIRE(listener.Take() == "WATCHDOG=1");
  REQUIRE(listener.Take() == "");
  clock.Advance(absl::Seconds(9));
  notifier.KeepAlive();
  REQUIRE(listener.Take() == "");
  clock.Advance(absl::Seconds(1));
  notifier.KeepAlive();
  REQUIRE(listener.Take() == "WATCHDOG=1");
}

TEST_CASE("A notifier says nothing of a watchdog that is not for this process", "[notify]") {
  const testing::NotifyListener listener;
  testing::FakeClock clock;
  setenv("NOTIFY_SOCKET", listener.path.c_str(), 1);
  setenv("WATCHDOG_USEC", "30000000", 1);
  setenv("WATCHDOG_PID", "1", 1);
  ServiceNotifier notifier(clock);
  notifier.KeepAlive();
  REQUIRE(listener.Take() == "");
  notifier.Ready();
  REQUIRE(listener.Take() == "READY=1");
}

TEST_CASE("A notifier without a socket, or with one that has gone, does nothing", "[notify]") {
  testing::FakeClock clock;
  ServiceNotifier silent(clock);
  silent.Ready();
  silent.KeepAlive();
  setenv("NOTIFY_SOCKET", "/nonexistent/notify", 1);
  ServiceNotifier unheard(clock);
  unheard.Ready();
  REQUIRE(std::getenv("NOTIFY_SOCKET") == nullptr);
}

}  // namespace
}  // namespace tandem
